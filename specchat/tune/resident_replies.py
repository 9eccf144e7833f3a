"""The target's replies from the resident engine, whose chats go first."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from specchat.engine.process.client import LOADER
from specchat.engine.protocol.events import Failed, Finished, Loaded
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Cancel, Generate, Load
from specchat.resident.shared import SharedEngine, join_background

TICK_S = 0.2
"""Seconds between looks at `stopped` while nothing arrives."""
ANSWER_S = 10.0
"""Seconds in which an engine says whether it has a pair."""
CLIENT = "tune"


class ResidentReplies:
    """Answers by a pair that is loaded there. Where that ends, it answers no more."""

    def __init__(self, pair: PairSpec, folder: Path, stopped: Callable[[], bool], loader: str = LOADER) -> None:
        """Look for an engine with `pair` by its socket in `folder`; `stopped` ends a reply."""
        self._stopped = stopped
        self._count = 0
        self._engine = join_background(folder, CLIENT, loader)
        if self._engine is not None and not _has(self._engine, pair):
            self.close()

    @property
    def open(self) -> bool:
        """True while it answers."""
        return self._engine is not None

    def __call__(self, request: Generate) -> tuple[int, ...] | None:
        """The tokens of a reply, none after `stopped`; None where the engine or the pair is gone.

        A reply that made way for another is asked for again.
        """
        while (engine := self._engine) is not None:
            if self._stopped():
                return ()
            self._count += 1
            end = self._finished(engine, replace(request, id=self._count))
            if isinstance(end, Finished) and end.reason != "cancelled":
                return end.token_ids
            if isinstance(end, Failed):
                self.close()
        return None

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    def _finished(self, engine: SharedEngine, request: Generate) -> Finished | Failed:
        """The end of a reply."""
        engine.send(request)
        cancelled = False
        while True:
            if self._stopped() and not cancelled:
                cancelled = True
                engine.send(Cancel(request.id))
            # One event at a time: those of a quick reply leave no pause.
            event = next(engine.events(TICK_S), None)
            if isinstance(event, Failed) or (isinstance(event, Finished) and event.id == request.id):
                return event


def _has(engine: SharedEngine, pair: PairSpec) -> bool:
    """True if `pair` is loaded there."""
    engine.send(Load(pair))
    event = next(engine.events(ANSWER_S), None)
    return isinstance(event, Loaded)
