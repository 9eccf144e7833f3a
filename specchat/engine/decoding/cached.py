"""A model with its KV cache and the tokens it holds. Free of torch, as drafters import it."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from specchat.engine.model.tree_layout import shared_prefix

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.model.cache_copy import CacheCopy
    from specchat.engine.model.copies import CacheEntries, Tail
    from specchat.engine.model.passes import ChainParameters, Skip
    from specchat.engine.model.tree_layout import Layout


CHECKPOINT_MARGIN = 16
"""Tokens before the end of a prompt at which a checkpoint is taken: a reply without its reasoning diverges within the
last tokens of its prompt."""


class Decoder(Protocol):
    """A decoder on the host or on a device. Each write invalidates KV entries at later positions."""

    @property
    def context(self) -> int:
        """Capacity of the cache in tokens."""
        ...

    @property
    def block(self) -> int:
        """Largest number of tokens in one `write`."""
        ...

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Write the KV entries of `tokens` to the cache from position `start` on."""
        ...

    def next_logits(self, token: int, start: int) -> "Tensor":
        """Return logits float32 [vocab], on the host, after `token` at position `start`."""
        ...

    def likeliest(self, tokens: Sequence[int], start: int, skip: "Skip") -> list[int]:
        """Return the likeliest token after each of `tokens`, without sub-layers in `skip`; the cache is unchanged."""
        ...

    def parameters(self) -> int:
        """Number of weights."""
        ...

    def memory(self) -> int:
        """Bytes held."""
        ...


class HostModel(Decoder, Protocol):
    """A model that runs on the host, or is called from there."""

    @property
    def vocab(self) -> int:
        """Columns of the logits."""
        ...

    def forward(self, tokens: Sequence[int], start: int, skip: "Skip" = ..., layout: "Layout | None" = ...) -> "Tensor":
        """Write the KV entries of `tokens` to the cache from position `start` on, and return a row for `logits` each.

        With `layout` the tokens are nodes of a tree; `keep` then writes one of its paths to the cache.
        """
        ...

    def logits(self, hidden: "Tensor") -> "Tensor":
        """Return logits float32 [rows, vocab] of rows from `forward`; the next pass may overwrite them."""
        ...

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Write the KV entries of a path, given by its rows of a tree, to the cache from position `start` on."""
        ...


@runtime_checkable
class DraftsChains(Protocol):
    """A model that may draft a chain in one call."""

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: "ChainParameters", skip: "Skip"
    ) -> list[tuple[int, float]]:
        """Draft a chain in one call, as `CachedDecoder.draft_chain` does."""
        ...


@runtime_checkable
class LossyCache(Protocol):
    """A model that can go on from some lengths of its text only: windows slide on, recurrent states change in place."""

    def reusable(self, length: int, held: int) -> int:
        """Return the most tokens, up to `length`, after which a text may go on from what the cache holds.

        It had `held` tokens last.
        """
        ...


@runtime_checkable
class TakesCheckpoints(LossyCache, Protocol):
    """A model that may need a checkpoint to roll a text back."""

    @property
    def recurrent(self) -> bool:
        """True where a text that is rolled back far needs a checkpoint."""
        ...

    def checkpoint(self) -> None:
        """Let texts go on from where the last pass began, even if they are rolled back there much later."""
        ...


@runtime_checkable
class ReadsTextsApart(HostModel, Protocol):
    """A model that reads a token each of several texts in one pass."""

    def copied(self, used: "Collection[CacheCopy]") -> "CacheCopy | None":
        """Return a copy of the cache for another text, none of those `used`; None where there can be none."""
        ...

    def logits_apart(self, tokens: Sequence[int], positions: Sequence[int], copies: "Sequence[CacheCopy]") -> "Tensor":
        """Return logits float32 [len(tokens), vocab] after each token of a text of its own, which `copies` go on from.

        Row r is bit for bit what it would be alone. The next pass may overwrite them. A device computes them later.
        """
        ...

    def finish(self) -> None:
        """Wait for a device to end what it was asked for."""
        ...

    def entries(self) -> "CacheEntries":
        """The cache's entries by position."""
        ...

    def tail(self, held: int) -> "Tail | None":
        """Return the tail of its text of `held` tokens, as `CopiedCache.tail`."""
        ...


class HoldsTexts(Protocol):
    """A holder of what a cache held of other texts."""

    def turn(self, wanted: Sequence[int]) -> int:
        """Give the cache as much of the text `wanted` as is held, and take what it would lose.

        Return the token at which to `put_common`; 0 for none.
        """
        ...

    def put_common(self) -> None:
        """Take what the cache holds, for several texts to go on from."""
        ...

    def take(self, text: Sequence[int], copy: "CacheCopy", chat: str | None) -> None:
        """Take what a copy of the cache holds of a `text` of `chat`, if it is one's."""
        ...


class KnowsPictures(Protocol):
    """Knows where a text must not be cut."""

    def torn(self, tokens: Sequence[int], at: int) -> range:
        """Entries of a picture that must be read at once, and would not be before and after entry `at`; else empty."""
        ...


class DraftsBlocks(Protocol):
    """A model that drafts a block in one pass."""

    wanted: int
    """Draft tokens of the next block."""


M = TypeVar("M", bound=Decoder, covariant=True)


class CachedModel(Generic[M]):
    """A model with the `tokens` that its cache holds."""

    def __init__(self, model: M) -> None:
        self.model = model
        self._lossy = model if isinstance(model, LossyCache) else None
        self.asynchronous = False
        """True if a device runs its passes while the host goes on."""
        self.read_again = 2
        """Tokens at the end of a text that its first pass over a draft reads, known or not."""
        self.tokens: list[int] = []
        self.shelf: HoldsTexts | None = None
        """Has what the cache held of other texts."""
        self.pictures: KnowsPictures | None = None
        self._checkpoint_at = self._parts_at = 0
        """Positions at which a checkpoint is due, and at which texts of others part from this one; 0 for none."""

    def begin(self, prompt: Sequence[int]) -> int:
        """Fill the cache with all of `prompt` but its last token; return the number of tokens reused."""
        reused = self.rewind(prompt)
        while self.fill(prompt):
            pass
        return reused

    def rewind(self, prompt: Sequence[int]) -> int:
        """Go back to the longest prefix of `prompt` that the cache or the shelf has; return its tokens."""
        self._parts_at = self.shelf.turn(prompt[:-1]) if self.shelf is not None else 0
        shared = shared_prefix(self.tokens, prompt[:-1])
        shared = self._torn(prompt, shared).start
        if (model := self._lossy) is not None:
            recurrent = isinstance(model, TakesCheckpoints) and model.recurrent
            self._checkpoint_at = len(prompt) - 1 - CHECKPOINT_MARGIN if recurrent else 0
            shared = model.reusable(shared, len(self.tokens))
        self.keep(shared)
        return len(self.tokens)

    def fill(self, prompt: Sequence[int]) -> bool:
        """Append one block of `prompt`, after `rewind`; return False once all but its last token are cached."""
        held = len(self.tokens)
        cuts = (at for at in (self._checkpoint_at, self._parts_at) if at > held)
        end = min(*cuts, held + self.model.block, len(prompt) - 1)
        if torn := self._torn(prompt, end):
            end = torn.start if torn.start > held else torn.stop
        block = list(prompt[held:end])
        if block:
            self.model.write(block, held)
            self.tokens += block
            if held == self._checkpoint_at > 0 and isinstance(self._lossy, TakesCheckpoints):
                self._lossy.checkpoint()
            if end == self._parts_at and self.shelf is not None:
                self.shelf.put_common()
        return len(self.tokens) < len(prompt) - 1

    def _torn(self, text: Sequence[int], at: int) -> range:
        return range(at, at) if self.pictures is None else self.pictures.torn(text, at)

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens."""
        del self.tokens[length:]

    def hold(self, token_ids: Sequence[int], length: int) -> None:
        """Set `tokens` to the first `length` tokens of `token_ids`, whose KV entries a step has written."""
        self.keep(length)
        self.tokens += token_ids[len(self.tokens) : length]

    def next_logits(self, token_ids: Sequence[int]) -> "Tensor":
        """Return logits float32 [vocab], on the host, after `token_ids`; caches all of it but its last token."""
        self.begin(token_ids)
        return self.model.next_logits(token_ids[-1], len(token_ids) - 1)
