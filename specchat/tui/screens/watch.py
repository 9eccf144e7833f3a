"""The reply that the engine writes for another program, as it comes."""

from textual.content import Content

from specchat import figures
from specchat.insight.gauges import Gauges, gauges
from specchat.service.others import OtherReply
from specchat.tui.screens.board import GAP, Board, side_by_side
from specchat.tui.session import AppSession
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.text.tail import tail_of
from specchat.tui.text.tokens import TokenView
from specchat.tui.widgets.panel import WIDTH, panel_rows

_BESIDE = 80
"""Cells from which the gauges stand beside the text."""
_STATES = {"waiting": "reading the prompt", "reading": "reading the prompt", "writing": "writing"}


class WatchScreen(Board):
    DIALOG_TITLE = "another program's reply"
    DIALOG_HINT = "esc closes"

    def __init__(self, session: AppSession) -> None:
        super().__init__()
        self._session = session
        self._of: OtherReply | None = None
        self._tokens: TokenView | None = None

    def on_mount(self) -> None:
        self._session.others.watch(True)
        super().on_mount()

    def on_unmount(self) -> None:
        self._session.others.watch(False)

    # Board

    @property
    def moving(self) -> bool:
        return True

    def advance(self, seconds: float) -> None:
        """Nothing: the session is told of all that happens."""

    def rows(self, width: int, height: int) -> list[Content]:
        other = self._session.others.last
        if other is None:
            words = "The engine has written for no other program yet. What one asks for will be here."
            return styled(words, ".label").wrap(width)
        if other is not self._of or self._tokens is None:
            self._of, self._tokens = other, TokenView(other.reply)
        self._tokens.update()
        shown, room = gauges(other.reply, self._session.loaded.info), width
        panel = panel_rows(shown, height, "") if width >= _BESIDE else []
        if panel:
            room -= WIDTH + len(GAP)
        head = [*_head(other, shown, figured=not panel), EMPTY]
        text = tail_of([*self._tokens.frozen, *self._tokens.open()], room, max(height - len(head), 1))
        left = [row.truncate(room, ellipsis=True) for row in (*head, *text)]
        return [*side_by_side(left, panel, room)] if panel else left


def _head(other: OtherReply, shown: Gauges, *, figured: bool) -> list[Content]:
    """The program, its prompt, and the reply's length, with its other figures if `figured`."""
    reply = other.reply
    state = _STATES.get(reply.state, "") or (f"ended: {reply.outcome}" if reply.outcome else "ended")
    known = [figures.of(reply.tally.tokens, "token")]
    if figured and shown.speed.tokens_per_second is not None:
        known.append(f"{figures.per_second(shown.speed.tokens_per_second)} tok/s")
    if figured and shown.acceptance.length is not None:
        known.append(f"{figures.per_step(shown.acceptance.length)} a step")
    if figured and shown.speed.speedup is not None:
        known.append("{}x {}".format(*figures.faster(shown.speed.speedup)))
    return [
        styled(f"{other.client} (process {other.pid})", ".value") + styled(f" · {state}", ".label"),
        styled("❯ ", ".key") + styled(other.prompt or "a prompt without words", ".label"),
        styled(" · ".join(known), ".label"),
    ]
