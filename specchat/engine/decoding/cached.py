"""A model with its cache, and which text the cache holds. Drafters import it, so torch stays out of here."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from specchat.engine.model.tree_layout import shared_prefix

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.model.chain_parameters import ChainParameters
    from specchat.engine.model.decoder import Skip
    from specchat.engine.model.tree_layout import Layout


class Model(Protocol):
    """A decoder on the host or on a device. Entries of its cache from the place written on count for nothing."""

    @property
    def context(self) -> int:
        """Tokens that the cache has room for."""
        ...

    @property
    def block(self) -> int:
        """Most tokens of one `write`."""
        ...

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on."""
        ...

    def next_logits(self, token: int, start: int) -> "Tensor":
        """Logits float32 [vocab], on the host, after `token` at slot `start`."""
        ...

    def guesses(self, tokens: Sequence[int], start: int, skip: "Skip") -> list[int]:
        """The likeliest token after each of `tokens` at slots start .. without `skip`; the cache stays as it is."""
        ...

    def parameters(self) -> int:
        """Number of weights."""
        ...

    def memory(self) -> int:
        """Bytes held."""
        ...


class HostModel(Model, Protocol):
    """A model that runs on the host, or is asked from there."""

    @property
    def vocab(self) -> int:
        """Columns of the logits."""
        ...

    def forward(self, tokens: Sequence[int], start: int, skip: "Skip" = ..., runs: "Layout | None" = ...) -> "Tensor":
        """Put the entries of `tokens` into the cache from slot `start` on; what `logits` takes, a row for each.

        With `runs` the tokens are nodes of a tree: `keep` then puts one path of it into the cache.
        """
        ...

    def logits(self, hidden: "Tensor") -> "Tensor":
        """Logits float32 [rows, vocab] of rows that `forward` made; they may be overwritten by the next pass."""
        ...

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Put the entries of these rows of a tree, a path of it, into the cache from slot `start` on."""
        ...


@runtime_checkable
class InOneGo(Protocol):
    """A model that may draft a chain without being asked for each token."""

    def drafted(
        self, tokens: Sequence[int], start: int, chain: "ChainParameters", skip: "Skip"
    ) -> list[tuple[int, float]]:
        """As `CachedDecoder.drafted`."""
        ...


M = TypeVar("M", bound=Model, covariant=True)


class CachedModel(Generic[M]):
    """`tokens` are those that the cache holds."""

    def __init__(self, model: M) -> None:
        self.model = model
        self.tokens: list[int] = []

    def begin(self, prompt: Sequence[int]) -> int:
        """Bring the cache to all of `prompt` but its last token; returns how many tokens were there already."""
        reused = self.rewind(prompt)
        while self.fill(prompt):
            pass
        return reused

    def rewind(self, prompt: Sequence[int]) -> int:
        """Keep what the cache shares with `prompt`; returns how many tokens that is."""
        self.keep(shared_prefix(self.tokens, prompt[:-1]))
        return len(self.tokens)

    def fill(self, prompt: Sequence[int]) -> bool:
        """After `rewind`: append one block of `prompt`; False when all but its last token are there."""
        block = list(prompt[len(self.tokens) : len(prompt) - 1][: self.model.block])
        if block:
            self.model.write(block, len(self.tokens))
            self.tokens += block
        return len(self.tokens) < len(prompt) - 1

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens."""
        del self.tokens[length:]

    def hold(self, text: Sequence[int], length: int) -> None:
        """The cache holds the first `length` tokens of `text`: those held so far and what a step wrote after them."""
        self.keep(length)
        self.tokens += text[len(self.tokens) : length]

    def next_logits(self, text: Sequence[int]) -> "Tensor":
        """Logits float32 [vocab], on the host, after `text`, all of which but its last token the cache then holds."""
        self.begin(text)
        return self.model.next_logits(text[-1], len(text) - 1)
