"""Proposals, values that define how a step drafts, and interfaces of drafters. Free of torch and executors."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specchat.dataclass import dataclass
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.strategy import MAX_DRAFT_LENGTH

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.model.passes import Skip

Role = str
"""A model of a pair: "target", "draft", or a strategy with trained heads."""

WIDTH = 4
"""Expanded nodes per level of a tree, and candidate children of each."""


@dataclass
class Draft:
    """Drafted tokens: node i + 1 is `tokens[i]`, node 0 the pending token.

    `parents[i]` is the parent node of `tokens[i]`, in depth-first order, empty for a chain. `q` are the distributions
    float64 [vocab] the tokens of a chain were drawn from, empty if the draft is deterministic or acceptance does not
    need them. `confidence` is the probability of each token, empty if unknown.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    q: "list[Tensor]" = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    def depths(self) -> list[int]:
        """Depth of each node, starting with node 0."""
        if not self.parents:
            return list(range(len(self.tokens) + 1))
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return depths

    def children(self) -> list[list[int]]:
        """Children of each node, in the order they were drafted."""
        children: list[list[int]] = [[] for _ in range(len(self.tokens) + 1)]
        for i in range(len(self.tokens)):
            children[self.parents[i] if self.parents else i].append(i + 1)
        return children

    def matches(self, new: Sequence[int]) -> list[bool | None]:
        """Return per token True if it agrees with the continuation `new`, None if `new` is too short to know."""
        depths, found = [0], [True]
        matches: list[bool | None] = []
        for node, token in enumerate(self.tokens):
            parent = self.parents[node] if self.parents else node
            depth = depths[parent]
            known = depth < len(new)
            right = found[parent] and known and new[depth] == token
            matches.append(right if known or not found[parent] else None)
            depths.append(depth + 1)
            found.append(right or (found[parent] and not known))
        return matches


@dataclass
class Copy(Draft):
    """A draft that needs no model: a chain or a tree of known tokens, empty for a plain step.

    `matched` is the length of the match at the end of the text. `score` is the sum over nodes of their path
    probabilities. With `likeliest` the step reports the target's likeliest token after each node
    (`StepOutcome.likeliest`).
    """

    strategy: str = ""
    matched: int = 0
    score: float = 0.0
    likeliest: bool = False

    def first(self, limit: int) -> "Copy":
        """Return the first `limit` nodes."""
        if limit >= len(self.tokens):
            return self
        cut = replace(self, tokens=self.tokens[:limit], parents=self.parents[:limit])
        cut.confidence = self.confidence[:limit]
        return cut

    def first_path(self) -> "Copy":
        """Return the chain of first siblings, which are the likeliest."""
        length = next((i for i, parent in enumerate(self.parents) if parent != i), len(self.parents))
        return replace(self.first(length), parents=[])


PLAIN = Copy(strategy="plain")
"""Proposal of a plain step."""


class Follow(NamedTuple):
    """A copy that may end a chain: `copy` is called after each drafted token.

    Its arguments are the drafted tokens and a function for the probability that all of them are accepted. `strategy`
    copies; `joint` is the strategy of the joint draft.
    """

    strategy: str
    joint: str
    copy: Callable[[Sequence[int], Callable[[], float]], Sequence[int]]


class Chain(NamedTuple):
    """A chain drafted by a model, up to `limit` tokens or until one more is unlikely to pay (`length_policy.py`).

    With `skip` the target leaves out sub-layers. With `layers` only its first `layers` layers run, and the verify pass
    starts from their hidden states; a step uses one such number. `adapt` makes of these states float32 [1, hidden] what
    the head reads.
    """

    strategy: str
    model: Role
    limit: int
    skip: "Skip | None" = None
    layers: int = 0
    follow: Follow | None = None
    adapt: "Callable[[Tensor], Tensor] | None" = None


class Block(Chain):
    """A chain drafted in one pass: one more token costs only verification."""


class Tree(NamedTuple):
    """A tree drafted by a model level by level: the best `limit` nodes found (EAGLE-2, Li et al. 2024).

    The value of a node is the product of the shares along its path. The WIDTH best nodes of a level are expanded, for
    at most `levels` levels. Nodes with a value below `least` are left out.
    """

    strategy: str
    model: Role
    limit: int
    least: float
    levels: int = MAX_DRAFT_LENGTH


class Then(NamedTuple):
    """Copied tokens and a chain after them, `chain.limit` tokens in all."""

    strategy: str
    copy: Copy
    chain: Chain


Proposal = Copy | Chain | Tree | Then


class Drafter(Protocol):
    """Interface of strategies: only `propose` is required. `token_ids` is the text so far, prompt included."""

    name: str

    @property
    def instant(self) -> bool:
        """True if proposing takes no time, so that the next step may start before the last one's text is processed."""
        return False

    @property
    def repeats(self) -> bool:
        """True if the next proposal is the last one again, so that a device may start on it before it has the text."""
        return False

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        """Begin a reply to `prompt`, which a token of `ends` ends; drop state of other texts."""
        return

    def forget(self) -> None:
        """Reset to the state right after loading."""
        return

    @abstractmethod
    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        """Propose up to `limit` tokens after `token_ids`, whose last token is not cached yet."""

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        """Learn from the outcome of the last proposal; the last token of `token_ids` is pending."""
        return

    def extend(self, token_ids: Sequence[int], copied: int, limit: int) -> Chain | None:
        """Propose up to `limit` tokens after `copied` ones that a grammar forces; None leaves it at those.

        The chain's own limit counts the copied ones too.
        """
        return None

    def observe_extension(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        """Take in the outcome of a step that went on so, in the place of `observe`."""
        return

    def warm(self, prompt: Sequence[int]) -> None:
        """Run once all occasional work of steps, for a device to capture; `prompt` is cached."""
        return


class ModelDrafter(Drafter, Protocol):
    """A strategy that runs a model."""

    def reading_ms(self, token_ids: Sequence[int]) -> float:
        """Milliseconds the model needs to read uncached tokens of `token_ids`; 0 if reading was never timed."""
        return 0.0


class Copier(Drafter, Protocol):
    """A strategy that copies. It reads the text only in `propose`, which takes no time."""

    @property
    def instant(self) -> bool:
        return True

    @abstractmethod
    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        """Propose up to `limit` tokens after `token_ids`; none if its end did not occur before."""
