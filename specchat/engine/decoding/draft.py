"""Proposals: values that say how a step drafts, and what returns them. Nothing here knows what runs them, or torch."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specchat.engine.decoding.stepped import Stepped
from specchat.engine.strategy import MAX_DRAFT_LENGTH

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.model.decoder import Skip

Role = str
"""A model of a pair: "target", "draft", or a family of trained heads."""

WIDTH = 4
"""Nodes that a level of a tree goes on from, and tokens that may follow each."""


@dataclass
class Draft:
    """Drafted tokens: node i + 1 is `tokens[i]`, node 0 the pending token.

    `parents[i]` is the node that `tokens[i]` follows; they are in depth-first order, and empty for a chain. `q` are the
    distributions float64 [vocab] that the tokens of a chain were drawn from, empty when the draft is deterministic or
    another test judges it; `confidence` is the probability of each token, empty where none is known.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    q: "list[Tensor]" = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    def depths(self) -> list[int]:
        """Nodes before each node, the pending token, node 0, first."""
        if not self.parents:
            return list(range(len(self.tokens) + 1))
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return depths

    def children(self) -> list[list[int]]:
        """The nodes that follow each node, in the order they were drafted."""
        children: list[list[int]] = [[] for _ in range(len(self.tokens) + 1)]
        for i in range(len(self.tokens)):
            children[self.parents[i] if self.parents else i].append(i + 1)
        return children

    def outcome(self, new: Sequence[int]) -> list[bool | None]:
        """Whether each token is in a text that went on with `new`; None beyond these."""
        depths, found = [0], [True]
        outcome: list[bool | None] = []
        for node, token in enumerate(self.tokens):
            parent = self.parents[node] if self.parents else node
            depth = depths[parent]
            known = depth < len(new)
            right = found[parent] and known and new[depth] == token
            outcome.append(right if known or not found[parent] else None)
            depths.append(depth + 1)
            found.append(right or (found[parent] and not known))
        return outcome


@dataclass
class Copy(Draft):
    """A draft that needs no model: a chain or a tree of known tokens, none for a plain step.

    `matched` counts the last tokens of the text that occurred before; `score` sums the probabilities of the paths to
    all tokens. With `likeliest` the step reports the target's likeliest token after each node (`Stepped.likeliest`).
    """

    strategy: str = ""
    matched: int = 0
    score: float = 0.0
    likeliest: bool = False

    def first(self, limit: int) -> "Copy":
        """Its first `limit` nodes."""
        if limit >= len(self.tokens):
            return self
        cut = replace(self, tokens=self.tokens[:limit], parents=self.parents[:limit])
        cut.confidence = self.confidence[:limit]
        return cut

    def first_path(self) -> "Copy":
        """The chain of the likeliest tokens, which come first among siblings."""
        length = next((i for i, parent in enumerate(self.parents) if parent != i), len(self.parents))
        return replace(self.first(length), parents=[])


PLAIN = Copy(strategy="plain")
"""Nothing is drafted."""


class Follow(NamedTuple):
    """A copy that may end a chain: `copy` is asked after each drafted token.

    It is given the drafted tokens and a function that tells the probability that all of them are accepted. `strategy`
    copies, and `joint` is the strategy of a step that does.
    """

    strategy: str
    joint: str
    copy: Callable[[Sequence[int], Callable[[], float]], Sequence[int]]


class Chain(NamedTuple):
    """A model drafts token after token, up to `limit`, until a further one is unlikely to pay (`length_policy.py`).

    With `skip` the target leaves out sub-layers. With `layers` only so many of its first ones run, which verification
    goes on from; in one step that number is one.
    """

    strategy: str
    model: Role
    limit: int
    skip: "Skip | None" = None
    layers: int = 0
    follow: Follow | None = None


class Block(Chain):
    """A chain whose first pass makes all tokens: a further one costs only a row of the verify pass."""


class Tree(NamedTuple):
    """A model drafts a tree level by level (EAGLE-2, Li et al. 2024): the best `limit` nodes of all found are drafted.

    The value of a node is the product of the shares along its path. The WIDTH best nodes of a level are gone on from,
    through at most `levels`. Nodes of a value below `least` are left out.
    """

    strategy: str
    model: Role
    limit: int
    least: float
    levels: int = MAX_DRAFT_LENGTH


class Then(NamedTuple):
    """Copied tokens, after which a chain goes on up to `chain.limit` tokens in all."""

    strategy: str
    copy: Copy
    chain: Chain


Proposal = Copy | Chain | Tree | Then


class Drafter(Protocol):
    """The proposing half of a strategy, which need not do more. Tokens are those of the whole text, prompt included."""

    name: str

    @property
    def ahead(self) -> bool:
        """Whether proposing takes no time, so that the next step may start before the text of the last is looked at."""
        return False

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        """Begin a reply to `prompt`, which a token of `ends` ends: forget what belongs to another text."""
        return

    def forget(self) -> None:
        """Reset to the state right after loading: nothing in a cache, nothing learnt from earlier replies."""
        return

    @abstractmethod
    def propose(self, text: Sequence[int], limit: int) -> Proposal:
        """Propose up to `limit` tokens that may follow `text`, whose last token is in no cache yet."""

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        """Learn how the last proposal was judged: `text` is the text now, its last token pending."""
        return

    def warm(self, prompt: Sequence[int]) -> None:
        """Run once what steps run now and then beside drafting, for a device to capture; `prompt` is in the cache."""
        return


class ModelDrafter(Drafter, Protocol):
    """A strategy that runs a model."""

    def behind(self, text: Sequence[int]) -> float:
        """Milliseconds that the model needs to read what it lacks of `text`, as far as reading was timed."""
        return 0.0


class Copier(Drafter, Protocol):
    """A strategy that copies. It reads a text when asked, not by steps, and that takes no time."""

    @property
    def ahead(self) -> bool:
        return True

    @abstractmethod
    def propose(self, text: Sequence[int], limit: int) -> Copy:
        """Up to `limit` tokens that may follow `text`; none where its end did not occur before."""
