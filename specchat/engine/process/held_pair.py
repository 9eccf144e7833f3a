"""The pair that a worker has loaded: its session, and how it is loaded and given up."""

import gc
import importlib
import traceback
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Protocol

from specchat.engine.fetch.file_state import file_state, state_once_loaded
from specchat.engine.hardware import gpu_failure
from specchat.engine.protocol.events import Counted, Event, Loaded, Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Count, Generate, Load
from specchat.engine.reply.control import Control
from specchat.engine.reply.cross_chat import CrossChatIndexer


class TurnHolder(Protocol):
    """Whose text the models of a pair hold, such as `reply.holder.Holder`."""

    back_s: float
    """Seconds that the models took to hold the text of the last reply that went on after another."""

    @property
    def together(self) -> Collection[int]:
        """Ids of the replies that go on in one pass."""


class WorkerSession(Protocol):
    """A loaded pair for the worker, such as `session.Session`."""

    info: PairInfo
    cross_chat: CrossChatIndexer

    @property
    def takes_turns(self) -> bool:
        """True if replies may take turns: what one loses to others is not read again each time."""

    @property
    def holder(self) -> TurnHolder: ...

    def generate(self, request: Generate, control: Control) -> Iterator[Event]: ...

    def count(self, request: Count) -> Counted: ...

    def save_read(self, stop: Callable[[], bool]) -> None: ...

    def forget_read(self, chat: str | None = None) -> None: ...


Loader = Callable[[PairSpec, Callable[[Loading], None], Callable[[], None]], WorkerSession]
"""Loads a pair: reports progress to the second argument, and calls the third before it allocates memory."""


class HeldPair:
    """The loaded pair, if any, from `loader`, a "module:function".

    Attributes:
        session: None without a pair.
        spec: the pair as it was asked for.
    """

    def __init__(self, loader: str, emit: Callable[[Event], None]) -> None:
        """`emit` sends events to the app."""
        self._loader, self._emit = loader, emit
        self.session: WorkerSession | None = None
        self.spec: PairSpec | None = None
        self._files = ""
        """The state of its files."""

    def find_loader(self) -> Loader:
        module, _, function = self._loader.partition(":")
        loader: Loader = getattr(importlib.import_module(module), function)
        return loader

    def load(self, request: Load) -> None:
        """Load a pair unless it is loaded from its files; missing or mismatched ones keep the one before."""
        pair, files = request.pair, file_state(request.pair)
        if self.session is None or pair != self.spec or files != self._files:
            wanted = gpu_failure.without_gpu(pair) if request.failed and not request.remembered else pair
            session = self.find_loader()(wanted, self._emit, self._make_room)
            notes = session.info.notes
            if request.failed and request.failed not in notes.warning:
                note = "; ".join(filter(None, (f"the GPU failed: {request.failed}", notes.note)))
                session.info = replace(session.info, notes=replace(notes, note=note))
            self.session, self.spec, self._files = session, pair, state_once_loaded(pair, files)
        self._emit(Loaded(self.session.info))

    def save_read(self) -> None:
        """Write read texts to disk before they are gone."""
        try:
            if self.session is not None:
                self.session.save_read(lambda: False)
        except Exception:
            traceback.print_exc()

    def _make_room(self) -> None:
        self.save_read()
        self.session = self.spec = None
        gc.collect()
