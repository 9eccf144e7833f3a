"""A loaded pair as the session sees it, wherever it runs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from specchat.engine.api import Acceptance, Sampling, StrategyStatus
from specchat.engine.decoding.step import Stepped
from specchat.engine.model.plan import Place


class Cache(Protocol):
    """The target's cache: which text it holds."""

    tokens: list[int]

    def begin(self, prompt: Sequence[int]) -> int:
        """Bring the cache to all of `prompt` but its last token; returns how many tokens were there already."""
        ...

    def rewind(self, prompt: Sequence[int]) -> int:
        """Keep what the cache shares with `prompt`; returns how many tokens that is."""
        ...

    def fill(self, prompt: Sequence[int]) -> bool:
        """After `rewind`: append one block of `prompt`; False when all but its last token are there."""
        ...

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens."""
        ...

    def next_logits(self, text: Sequence[int]) -> Tensor:
        """Logits float32 [vocab] of the token after `text`, on the host; the cache then holds part of `text`."""
        ...


class Drafting(Protocol):
    """A drafter as the session knows it; how it drafts is between it and its runner."""

    name: str

    def begin(self, prompt: Sequence[int]) -> None:
        """A reply to `prompt` starts: forget what belongs to another text."""
        ...

    def forget(self) -> None:
        """Be as when just loaded: nothing in a cache, nothing learnt from earlier replies."""
        ...


class Reply(Protocol):
    """A reply being written, step by step."""

    committed: list[int]

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        ...

    def step(self, drafter: Any, length: int, acceptance: Acceptance) -> Stepped:
        """Add at least one token, at most `length` + 1, none after an end-of-text token."""
        ...

    def close(self) -> None:
        """No more steps: leave the cache with the committed tokens, whatever was under way."""
        ...


class Runner(Protocol):
    """A target with its drafters on one device."""

    @property
    def cache(self) -> Cache: ...
    @property
    def drafters(self) -> Mapping[str, Drafting]: ...

    statuses: tuple[StrategyStatus, ...]
    context: int
    vocab: int
    """Columns of the target's logits."""
    eos: frozenset[int]
    """End-of-text tokens that the checkpoint names."""
    target_parameters: int
    draft_parameters: int
    place: Place
    device: str
    """The device in words."""
    exactness: str
    """How equality with plain decoding is ensured here, in words."""

    def reply(self, sampling: Sampling, prompt: list[int], eos: Collection[int]) -> Reply:
        """Start a reply to `prompt`, all of which but its last token is in the cache."""
        ...

    def memory(self) -> int:
        """Bytes held on the device: weights, cache, buffers."""
        ...
