"""Drafters that run on the device: nothing they draft passes through the host."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from specchat.engine.device.buffers import PASS_ROWS
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.launches import Launches, Source
from specchat.engine.drafters.skip_search import WINDOW, SkipSearch
from specchat.engine.drafters.swift import SEARCH_EVERY
from specchat.engine.model.decoder import Skip, shared_prefix


@runtime_checkable
class DeviceDrafter(Protocol):
    """One family of drafting, its tokens left in `fed` for the verify pass."""

    name: str
    source: Source

    def begin(self, prompt: Sequence[int]) -> None:
        """A reply to `prompt` starts: forget what belongs to another text."""
        ...

    def forget(self) -> None:
        """Be as when just loaded: nothing in a cache, nothing learnt from earlier replies."""
        ...

    def propose(self, committed: Sequence[int], limit: int) -> int:
        """Start drafting up to `limit` tokens after `committed`; returns how many, without waiting for them."""
        ...

    def observe(self, committed: Sequence[int]) -> None:
        """The last draft was judged: `committed` is the text now, its last token pending."""
        ...


class DeviceDraftModel:
    """A small model of the same family drafts token by token (Leviathan et al. 2023)."""

    name = "draft"
    source: Source = "draft"

    def __init__(self, decoder: DeviceDecoder, launches: Launches) -> None:
        self._decoder = decoder
        self._launches = launches
        self._tokens: list[int] = []
        """The tokens that are certainly in the draft's cache."""
        self._drafted = False

    def begin(self, prompt: Sequence[int]) -> None:
        del self._tokens[shared_prefix(self._tokens, prompt) :]

    def forget(self) -> None:
        self._tokens.clear()

    def propose(self, committed: Sequence[int], limit: int) -> int:
        # The first pass feeds the last two tokens, so there must be two.
        self._drafted = limit > 0 and len(committed) > 1 and len(committed) + limit <= self._decoder.context
        if not self._drafted:
            return 0
        ready = len(committed) - 2
        while len(self._tokens) < ready:
            block = committed[len(self._tokens) : ready][:PASS_ROWS]
            self._launches.prefill(self._decoder, block, len(self._tokens))
            self._tokens += block
        self._launches.propose("draft", limit)
        self._tokens[ready:] = committed[ready:]
        return limit

    def observe(self, committed: Sequence[int]) -> None:
        # The pass over an accepted token left its entry in the cache; all but the last two are certain to be there.
        if self._drafted:
            self._tokens += committed[len(self._tokens) : -2]


class DeviceSwift:
    """The target drafts for itself with some of its sub-layers left out (Xia et al. 2024)."""

    name = "swift"
    source: Source = "swift"

    def __init__(self, decoder: DeviceDecoder, launches: Launches) -> None:
        self._launches = launches
        self._layers = decoder.config.layers
        self._prompt = 0
        self.forget()

    def begin(self, prompt: Sequence[int]) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self._search = SkipSearch(self._layers)
        self._steps = 0

    def propose(self, committed: Sequence[int], limit: int) -> int:
        if limit <= 0:
            return 0
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0:
            self._try_another(committed)
        self._launches.flags.set(self._search.best)
        self._launches.propose("swift", limit)
        return limit

    def observe(self, committed: Sequence[int]) -> None:
        pass

    def _try_another(self, committed: Sequence[int]) -> None:
        """Score one more skip set on the last generated tokens: the share it would have drafted right."""
        first = len(committed) - 1 - WINDOW
        if self._search.done or first < self._prompt:
            return
        window, expected = committed[first:-1], committed[first + 1 :]

        def score(skip: Skip) -> float:
            self._launches.flags.set(skip)
            chosen = self._launches.agreement(window, first)
            return sum(a == b for a, b in zip(chosen, expected, strict=True)) / len(expected)

        self._search.offer(score)
