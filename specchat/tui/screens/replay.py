"""A reply played again step by step."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from specchat import figures
from specchat.chat.sources import REJECTED, rejected_text, source_of
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.step_tree import branched
from specchat.engine.strategies import SERVER
from specchat.insight.replay import Playback, ReplayState
from specchat.tui.screens.board import Board
from specchat.tui.text.bars import bar
from specchat.tui.text.draft_rows import tree_rows
from specchat.tui.text.inspect import WAITED_MS
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.text.tail import tail_of
from specchat.tui.text.tokens import TokenView

_ONE_ROW = 76
"""Cells that most drafts fit in."""
_BRANCHES = 7
"""Rows for the branches of a step, where drafts are trees; fewer in a low window."""
_TEXT = 6
"""Rows of text that these leave."""


class ReplayScreen(Board):
    DIALOG_TITLE = "replay"
    DIALOG_HINT = "space plays · left right step · + - pace · esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play or pause", show=False),
        Binding("right", "move(1)", "Step forward", show=False),
        Binding("left", "move(-1)", "Step back", show=False),
        Binding("home", "seek(0)", "Start", show=False),
        Binding("end", "seek(1)", "End", show=False),
        Binding("plus,equals_sign", "faster(1)", "Faster", show=False),
        Binding("minus", "faster(-1)", "Slower", show=False),
    ]

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.playback = Playback(reply)
        self.playback.toggle()
        self._tokens = TokenView(self.playback.shown)
        self._of = self.playback.shown
        self._trees = reply.record.branched

    # Board

    @property
    def moving(self) -> bool:
        return self.playback.playing

    def advance(self, seconds: float) -> None:
        self.playback.advance(seconds)

    def rows(self, width: int, height: int) -> list[Content]:
        playback, moment = self.playback, self.playback.moment
        head = [self._place(moment, width), _track(moment, width), *_step_rows(moment.step, width)]
        if self._trees:
            head += _branch_rows(moment.step, max(min(_BRANCHES, height - len(head) - _TEXT), 0))
        if height > 10:
            head.append(EMPTY)
        if playback.shown is not self._of:
            self._tokens, self._of = TokenView(playback.shown), playback.shown
        self._tokens.update()
        return [*head, *tail_of([*self._tokens.frozen, *self._tokens.open()], width, max(height - len(head), 1))]

    def _place(self, moment: ReplayState, width: int) -> Content:
        """`step 12 of 63 · paused, 80x slower · 0.04 of 0.10 s · 41 tokens · 3.4 a step`, as far as it fits."""
        acceptance = self.playback.shown.tally.acceptance_length
        length = [] if acceptance is None else [f"{acceptance:.1f} a step"]
        state = "playing" if self.playback.playing else "ended" if self.playback.ended else "paused"
        time = f"{moment.milliseconds / 1000:.2f} of {moment.total / 1000:.2f} s"
        rest = [f"{state}, {self.playback.pace}", time, figures.of(moment.tokens, "token"), *length]
        return _fitting(styled(f"step {moment.steps} of {moment.of}", ".value"), " · ", rest, width)

    # Keys

    def action_play(self) -> None:
        self.playback.toggle()
        self.wake()

    def action_move(self, by: int) -> None:
        self.playback.move(by)
        self.wake()

    def action_seek(self, end: int) -> None:
        self.playback.move(self.playback.moment.of * (1 if end else -1))
        self.wake()

    def action_faster(self, by: int) -> None:
        self.playback.faster(by)
        self.wake()


def _fitting(first: Content, between: str, rest: Sequence[str], width: int) -> Content:
    """`first` and as many of the others as there is room for."""
    row = first
    for part in rest:
        if row.cell_length + len(between + part) > width:
            break
        row += styled(between + part, ".label")
    return row


def _track(moment: ReplayState, width: int) -> Content:
    done, rest = bar(moment.milliseconds / moment.total if moment.total else 1.0, width)
    return styled(done, ".spark") + styled(rest, ".track")


def _step_rows(step: Step | None, width: int) -> list[Content]:
    """The cost of the step, and the fate of its draft; as many rows for every step."""
    rows = [styled("before the first step", ".label")]
    if step is not None:
        times = [f"verify {step.verify_ms:.1f} ms", f"other {step.other_ms:.1f} ms"]
        if step.waited_ms >= WAITED_MS:
            times.append(f"waited {step.waited_ms:.1f} ms")
        draft = styled(f"draft {step.draft_ms:.1f} ms", ".label")
        if step.strategy == SERVER:
            draft, times = styled(f"{step.verify_ms:.1f} ms on the server", ".label"), []
        rows = [_fitting(draft, "   ", times, width), *_drafted(step).wrap(width)]
    size = 2 if width >= _ONE_ROW else 3
    return [*rows, *[EMPTY] * size][:size]


def _branch_rows(step: Step | None, size: int) -> list[Content]:
    """The step's tree; as many rows for every step."""
    rows = tree_rows(step, size) if step is not None and branched(step.drafts) else []
    return [*rows, *[EMPTY] * size][:size]


def _drafted(step: Step) -> Content:
    """`accepted 3 of 5: the fox who | rejected: or so | correction: lamp`, each part in its source's style."""
    if not step.drafted:
        return styled("nothing drafted: ", ".label") + _shown(
            "".join(piece.text for piece in step.pieces), ".spec-plain"
        )
    row = styled(f"accepted {step.accepted} of {step.drafted}", ".label")
    kept = [piece for piece in step.pieces if piece.source not in ("target", "bonus")]
    if kept:
        row += styled(": ", ".label") + _shown("".join(piece.text for piece in kept), source_of(kept[-1].source).style)
    text, others = rejected_text(step)
    if text:
        row += styled(" | rejected: ", ".label") + _shown(text, REJECTED.style)
        row += styled(f" and {others} other{'s' * (others != 1)}" if others else "", ".label")
    for piece in step.pieces[len(kept) :]:
        source = source_of(piece.source)
        row += styled(f" | {source.words}: ", ".label") + _shown(piece.text, source.style)
    return row


def _shown(text: str, style: str) -> Content:
    return styled(clean(text).replace("\n", "↵").replace("\t", " "), style)
