"""Asks before a draft is trained on the saved chats, and shows how far that is."""

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from specchat.chat.asked import AskedPrompt, asked_prompts
from specchat.clean import one_line
from specchat.engine.hardware.gpu_counters import free_memory_of
from specchat.figures import duration
from specchat.models import words
from specchat.tui.screens.beside_dialog import BesideDialog, lack
from specchat.tui.session import AppSession
from specchat.tune.plan import LEAST_ASKED, TunePlan, tune_plan, unsupported


class TuneScreen(BesideDialog[bool]):
    """Gives True where the training is to begin. One that runs is shown, and can be stopped."""

    DIALOG_TITLE = "tune on my chats"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "agree", "Begin", show=False),
        Binding("x", "stop", "Stop", show=False),
    ]

    def __init__(self, session: AppSession, problem: str = "") -> None:
        """`problem` is a sentence on why the loaded pair cannot be trained for."""
        super().__init__()
        self._session = session
        self._problem = problem
        self._asked: list[AskedPrompt] | None = None
        self._free: int | None = None
        """Bytes of the pair's GPU that are free; None if unknown, and without one."""

    @property
    def plan(self) -> TunePlan | None:
        """The training that is offered; None where none can be."""
        info = self._session.loaded.info
        if info is None or self._problem or unsupported(info) or self._session.tuning.busy:
            return None
        if len(self._asked or ()) < LEAST_ASKED:
            return None
        return tune_plan(info, on_cpu=self.on_cpu)

    @property
    def on_cpu(self) -> bool:
        """True where it is trained in main memory since the GPU of the pair has no room for it."""
        return self._missing > 0

    @property
    def _missing(self) -> int:
        """Bytes that the GPU of the pair lacks for it."""
        info = self._session.loaded.info
        return 0 if info is None or self._free is None else max(0, tune_plan(info).gpu - self._free)

    def count(self) -> None:
        info = self._session.loaded.info
        if info is not None and info.load.gpu:
            self._free = free_memory_of(info.load.gpu)
        self._asked = list(asked_prompts(self._session.chat.saving.store))

    @property
    def keys(self) -> str:
        if self._session.tuning.busy:
            return "x stops · "
        if self.plan is None or self._short():
            return ""
        return "enter goes on · " if self._session.tuning.unfinished(self._session.loaded.id) else "enter begins · "

    def sentences(self) -> Iterator[str]:
        session, info = self._session, self._session.loaded.info
        if session.tuning.busy:
            yield f"{session.tuning}."
            yield "It waits while a reply is written, and goes on when specchat is started again."
            return
        if info is None:
            yield "No model is loaded."
            return
        if problem := self._problem or unsupported(info):
            yield problem
            return
        yield f"The draft of {one_line(info.name, 40)} learns what the model says to prompts like yours."
        if self._asked is None:
            yield "Reading your chats ..."
            return
        found = f"{len(self._asked):,} prompt{'s' * (len(self._asked) != 1)}"
        chats = len({each.chat for each in self._asked})
        if (plan := self.plan) is None:
            yield f"Your saved chats have {found} with a reply. It takes {LEAST_ASKED} at least: chat a while first."
            return
        yield f"Your {chats:,} saved chat{'s' * (chats != 1)} have {found}. They never leave this machine."
        if missing := self._missing:
            lacking = f"The GPU lacks {words.size(missing)} of {words.size(tune_plan(info).gpu)} for it"
            yield f"{lacking}, so it is trained in main memory. Heads or a smaller draft take less."
        time, memory = duration(1e3 * plan.seconds), f"{words.size(plan.memory)} of memory"
        memory += f" and {words.size(plan.gpu)} of the GPU's" if plan.gpu else ""
        yield f"It takes about {time} while you write nothing, and {memory} beside the chat."
        if short := self._short():
            yield short
            return
        yield "It waits while a reply is written. The draft is used only if replies are surely faster; the text stays."

    def _short(self) -> str:
        """A sentence where the memory does not hold it."""
        return lack(self.plan.memory) if self.plan is not None else ""

    def action_agree(self) -> None:
        if self.plan is not None and not self._short():
            self.dismiss(True)

    def action_stop(self) -> None:
        self._session.tuning.stop()
        self.look()
