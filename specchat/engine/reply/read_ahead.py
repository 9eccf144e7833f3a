"""The draft model reads a prompt before a reply's first step: while the target does, where that leaves a core free.

The rest of the prompt is read before it first drafts, as without this.
"""

from collections.abc import Iterator, Mapping, Sequence
from threading import Event, Thread
from time import thread_time
from types import TracebackType
from typing import Self

import torch

from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.draft_model import DRAFT, DraftModelDrafter
from specchat.engine.strategies import STRATEGIES

WORTH = 32
"""Tokens to read from which a thread is started."""


def reader(
    drafters: Mapping[str, Drafter], strategy: str, prompt: Sequence[int], limit: int, free_cores: int
) -> DraftModelDrafter | None:
    """The drafter whose model reads a `prompt` on the host before the reply, with so many `free_cores`.

    The first draft has `limit` tokens at most.
    """
    draft, auto = drafters.get(DRAFT.name), drafters.get("auto")
    if not isinstance(draft, DraftModelDrafter) or draft.instant:
        return None
    if strategy == "auto" and isinstance(auto, AutoDrafter):
        return draft if auto.prepare(draft.name, prompt, limit, free_cores > 0) else None
    return draft if STRATEGIES[strategy].needs_draft else None


class ReadAhead:
    """Reads in a thread from `with` to its end, at most, or else a block at each `fill`."""

    def __init__(self, draft: DraftModelDrafter | None, prompt: Sequence[int], free_cores: int) -> None:
        """Without a `draft` nothing is read; without `free_cores` there is no thread."""
        self._draft, self._prompt, self._free_cores = draft, prompt, free_cores
        self._blocks: Iterator[None] = iter(()) if draft is None else draft.reading(prompt)
        self._enough = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if self._draft is not None and self._free_cores and self._draft.unread(self._prompt) >= WORTH:
            self._thread = Thread(target=self._read, args=(self._draft,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread is not None:
            self._enough.set()
            self._thread.join()

    def fill(self) -> bool:
        """Read a block where no thread does; False when nothing is left for that."""
        if self._thread is not None:
            return False
        for _ in self._blocks:
            return True
        return False

    def _read(self, draft: DraftModelDrafter) -> None:
        torch.set_num_threads(self._free_cores)  # of this thread alone, where torch computes: the target has the others
        try:
            # It waits for cores now and then: that takes time, and costs none.
            for _ in draft.reading(self._prompt, thread_time):
                if self._enough.is_set():
                    break
        except Exception:  # the drafter meets any error again and reports it
            draft.forget()
