"""Measures what drafts fastest with the loaded pair, shows the table that decides, and asks before it is written."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from specchat.chat.asked import asked_prompts
from specchat.clean import one_line
from specchat.engine.strategies import labelled
from specchat.models import words
from specchat.recommend.beside import MINUTES
from specchat.tui.screens.beside_dialog import BesideDialog, lack
from specchat.tui.session import AppSession
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import FactRows
from specchat.tune.plan import LEAST_ASKED, recommend_memory

_COLUMNS = (9, 14, 8)
"""Cells of the columns after the name."""


class RecommendScreen(BesideDialog[str]):
    """Gives "begin" where it is to be measured, "write" where the result is to be written."""

    DIALOG_TITLE = "what is fastest here"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "agree", "Begin or write", show=False),
        Binding("x", "stop", "Stop", show=False),
        Binding("a", "again", "Measure again", show=False),
    ]

    def __init__(self, session: AppSession, problem: str, looked: Callable[[], object]) -> None:
        """`problem` is why the loaded pair cannot be measured; `looked` takes in what ended meanwhile."""
        super().__init__()
        self._session = session
        self._problem = problem
        self._looked_at = looked
        self._prompts: int | None = None
        self._again = False

    @property
    def from_chats(self) -> bool:
        """True if there are prompts enough in the saved chats."""
        return (self._prompts or 0) >= LEAST_ASKED

    def count(self) -> None:
        self._prompts = sum(1 for _ in asked_prompts(self._session.chat.saving.store))

    @property
    def _shows_result(self) -> bool:
        recommending = self._session.recommending
        here = recommending.pair == self._session.loaded.id
        return recommending.result is not None and here and not self._again

    @property
    def _may_begin(self) -> bool:
        ready = self._session.loaded.info is not None and self._prompts is not None
        free = not self._session.recommending.busy and not self._shows_result
        return ready and free and not self._problem and not self._short()

    def _short(self) -> str:
        """A sentence where the memory does not hold it."""
        info = self._session.loaded.info
        return lack(recommend_memory(info)) if info is not None else ""

    def look(self) -> None:
        if self.query(FactRows):
            self._looked_at()
        super().look()

    @property
    def keys(self) -> str:
        recommending = self._session.recommending
        if recommending.busy:
            return "x stops · "
        if self._shows_result:
            return "enter writes it · a measures again · " if recommending.choice is not None else "a measures again · "
        return "enter begins · " if self._may_begin else ""

    def sentences(self) -> Iterator[str]:
        recommending, info = self._session.recommending, self._session.loaded.info
        if recommending.busy:
            yield f"{recommending}."
            yield "It waits while a reply is written. You may close this and chat on."
            return
        if self._shows_result:
            yield from recommending.lines
            return
        if recommending.error:
            yield recommending.error
        if self._problem or info is None:
            yield self._problem or "No model is loaded."
            return
        yield f"For {MINUTES} minutes all strategies of {one_line(info.name, 40)} answer prompts beside plain decoding."
        if self._prompts is None:
            yield "Reading your chats ..."
            return
        chats = f"the {self._prompts:,} prompts of your saved chats" if self.from_chats else "those that come along"
        yield f"The prompts are {chats}. It takes {words.size(recommend_memory(info))} of memory beside the chat."
        if short := self._short():
            yield short
            return
        yield "Then you see the table that decides, and nothing is written unless you say so."

    def table(self, width: int) -> Iterator[Content]:
        """Strategies over plain decoding, then other settings over the best of these; the one to write stands out."""
        if not self._shows_result:
            return
        recommending = self._session.recommending
        strategy, length = recommending.choice or ("", None)
        chosen = labelled(strategy, length or 0)
        room = max(min(width - sum(_COLUMNS), 34), 8)
        for over, rows in (("x plain", recommending.rows), ("x best", recommending.others)):
            for name, *cells in [("", over, "95 %", "prompts"), *rows] if rows else ():
                if not name:
                    yield EMPTY
                text = one_line(name, room).ljust(room) if name else " " * room
                text += "".join(cell.rjust(size) for cell, size in zip(cells, _COLUMNS, strict=True))
                yield styled(text, ".head" if name and name == chosen else ".quiet")

    def action_agree(self) -> None:
        if self._shows_result:
            if self._session.recommending.choice is not None:
                self.dismiss("write")
        elif self._may_begin:
            self.dismiss("begin")

    def action_stop(self) -> None:
        self._session.recommending.stop()
        self.look()

    def action_again(self) -> None:
        if self._shows_result:
            self._again = True
            self.look()
