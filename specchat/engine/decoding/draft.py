"""How a family of drafting and what runs it see each other."""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol

from specchat.engine.decoding.stepped import Stepped
from specchat.engine.model.decoder import Skip
from specchat.engine.strategies import MAX_DRAFT_LENGTH, Head

Role = Literal["target", "draft"] | Head
"""The models of a pair, and the heads that stand for one."""

WIDTH = 4
"""Nodes that a level of a tree goes on from, and tokens that may follow each."""

One = Callable[[int], None]
"""Makes a token of a chain, or a level of a tree, by its number."""
Copy = Callable[[Sequence[int], Callable[[], float]], Sequence[int]]
"""What to add to these drafted tokens, all of which stay with the chance that the function tells."""


class Drafts(Protocol):
    """Where a draft is made: eagerly on the host, or in captured graphs on a device.

    A draft is a tree of tokens. Node 0 of a step is the pending token, the last one of the text; node i is the i-th
    drafted one, and comes after the node that it follows. In a chain each follows the one before.
    """

    @property
    def ends(self) -> Collection[int]:
        """Tokens that end the reply: what is drafted after one is lost."""
        ...

    def chain(self, name: str, limit: int, one: Callable[[int], None], at_once: bool = False) -> None:
        """Draft token after token: one(i) runs a model over node i and picks node i + 1.

        The chain ends where a further token is unlikely to pay (`stop.py`), or soon after it.
        On the host it goes on after what `fill` took, if anything: then the first one(i) runs the model over that too.

        Args:
            name: of the family; a device keeps one captured graph for each.
            limit: most tokens, at least 1, with those that were taken before.
            one: calls `run` and `pick` and reads nothing of what they made, so that it can be captured.
            at_once: the first `run` is for all tokens, and a further one costs only a row of the check.
        """
        ...

    def follow(self, copy: Copy) -> None:
        """Ask `copy` after each token of the chains of this step what may follow it. What it gives ends a chain.

        Only the host asks: a device does not know its tokens before it has judged them.
        """
        ...

    def grow(self, name: str, limit: int, one: One, least: float, levels: int = MAX_DRAFT_LENGTH) -> None:
        """Draft a tree level by level (EAGLE-2, Li et al. 2024): the best `limit` nodes of all that were found stay.

        The value of a node is the product of `branch`'s shares along its path. The WIDTH best nodes of a level are gone
        on from.

        Args:
            name: of the family, as in `chain`.
            limit: most nodes, and most levels, at least 1.
            one: one(i) calls `run` and `branch` for what level i goes on from; level 0 goes on from node 0.
            least: nodes of a smaller value are left out; the tree ends with the level that has none, or soon after it.
            levels: most of them.
        """
        ...

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = (), parents: Sequence[int] = ()) -> None:
        """Take a draft that needs no model, with the probability of each token if there is one.

        `parents` are the nodes that the tokens follow, none for a chain. They are in depth-first order: a node comes
        right after its parent, or after all that follows an elder sibling.
        """
        ...

    def want_likeliest(self) -> None:
        """Have the step tell, in `Stepped.likeliest`, what the target finds likeliest after each node."""
        ...

    def leave_out(self, skip: Skip) -> None:
        """Which sub-layers `run` skips from now on where it is asked to."""
        ...

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        """Run a model over a node, or over the nodes that a level of a tree goes on from.

        Before node or level 0 goes what the model's cache lacks of the text.
        """
        ...

    def pick(self, role: Role, node: int) -> None:
        """Choose node + 1 from what `run` made of node, by the target's options and the noise of its position.

        Where a host's `run` drafted several tokens in one go they are taken all.
        """
        ...

    def branch(self, role: Role, level: int) -> None:
        """Find WIDTH tokens that may follow each node `run` went over, and their shares.

        They are those with the largest scores under the target's options plus the noise of their position, which is
        what the target itself draws with where acceptance is `coupled`; without that noise where it is not. A share is
        the softmax of this sum.
        """
        ...


class EarlyDrafts(Drafts, Protocol):
    """Where a target's first layers draft for it."""

    def run_early(self, layers: int, node: int) -> None:
        """Run the target's first `layers` over a node of a chain, as `run`; `pick` then reads them.

        The check goes on from there. In one step the number of layers is one.
        """
        ...


class SureDrafts(Drafts, Protocol):
    """Where a model may say how likely what it drafted is to stay."""

    def sure(self, chance: float) -> None:
        """Take `chance` as the probability of the token that was picked last: where a chain ends is judged by it."""
        ...


class Drafter(Protocol):
    """One family of drafting, wherever it runs. Tokens are those of the whole text, prompt included."""

    name: str

    @property
    def ahead(self) -> bool:
        """Whether the next draft is started in no time, so that the text of the last step need not wait for it."""
        ...

    def begin(self, prompt: Sequence[int]) -> None:
        """A reply to `prompt` starts: forget what belongs to another text."""
        ...

    def forget(self) -> None:
        """Be as when just loaded: nothing in a cache, nothing learnt from earlier replies."""
        ...

    def propose(self, text: Sequence[int], limit: int) -> str:
        """Draft up to `limit` tokens that may follow `text`, whose last token is in no cache yet.

        Returns:
            the name of the family that the draft is of.
        """
        ...

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        """The last draft was judged so: `text` is what there is now, its last token pending."""
        ...


class ModelDrafter(Drafter, Protocol):
    """A family that runs a model."""

    def behind(self, text: Sequence[int]) -> float:
        """Milliseconds that the model needs for what it has not read of `text`, as far as reading was timed."""
        ...
