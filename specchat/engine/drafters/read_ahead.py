"""The draft model reads a prompt while the target does: in a thread, on the core that is left free.

What it has not read when the target is done it reads before it first drafts, as without this.
"""

from collections.abc import Mapping, Sequence
from threading import Event, Thread
from types import TracebackType

import torch

from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.auto import AutoDrafter
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.options import Speculation
from specchat.engine.strategies import STRATEGIES

WORTH = 32
"""Tokens to read from which a thread is started."""


def reader(
    drafters: Mapping[str, Drafter], speculation: Speculation, prompt: Sequence[int]
) -> DraftModelDrafter | None:
    """The drafter whose model a reply to `prompt` will need, if it can read on the host meanwhile."""
    draft, auto = drafters.get("draft"), drafters.get("auto")
    if not isinstance(draft, DraftModelDrafter) or draft.ahead:
        return None
    if speculation.strategy == "auto" and isinstance(auto, AutoDrafter):
        return draft if auto.prepare(draft.name, prompt, speculation.draft_length) else None
    return draft if STRATEGIES[speculation.strategy].needs_draft else None


class ReadAhead:
    """Reads from `with` to its end, at most."""

    def __init__(self, draft: DraftModelDrafter | None, prompt: Sequence[int], alone: bool) -> None:
        """Nothing is read where there is no `draft`; it keeps to one thread of computing unless it is `alone` there."""
        self._draft, self._prompt, self._alone = draft, prompt, alone
        self._enough = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> None:
        if self._draft is not None and self._draft.unread(self._prompt) >= WORTH:
            self._thread = Thread(target=self._read, args=(self._draft,), daemon=True)
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread is not None:
            self._enough.set()
            self._thread.join()

    def _read(self, draft: DraftModelDrafter) -> None:
        if not self._alone:
            torch.set_num_threads(1)  # of this thread alone: the target has the other cores
        try:
            draft.read(self._prompt, self._enough)
        except Exception:  # whatever it is, the drafter meets it again where it is told
            draft.forget()
