"""How a family of drafting and what runs it see each other."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from specchat.engine.model.decoder import Skip

Role = Literal["target", "draft"]
"""The models of a pair."""


class Drafts(Protocol):
    """Where a draft is made: eagerly on the host, or in captured graphs on a device.

    Node 0 of a step is the pending token, the last one of the text; node i is the i-th drafted one.
    """

    def chain(self, name: str, limit: int, one: Callable[[int], None], unsure: float) -> None:
        """Draft token after token: one(i) runs a model over node i and picks node i + 1.

        Args:
            name: of the family; a device keeps one captured graph for each.
            limit: most tokens, at least 1.
            one: calls `run` and `pick` and reads nothing of what they made, so that it can be captured.
            unsure: the chain ends after a token that got less than this probability, or soon after it.
        """
        ...

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = ()) -> None:
        """Take a draft that needs no model, with the probability of each token if there is one."""
        ...

    def leave_out(self, skip: Skip) -> None:
        """Which sub-layers `run` skips from now on where it is asked to."""
        ...

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        """Run a model over a node, and before node 0 over the token before that its cache may lack."""
        ...

    def pick(self, role: Role, node: int) -> None:
        """Choose node + 1 from what `run` made of node, by the target's options and the noise of its position."""
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

    def propose(self, text: Sequence[int], limit: int) -> None:
        """Draft up to `limit` tokens that may follow `text`, whose last token is in no cache yet."""
        ...

    def observe(self, text: Sequence[int], drafted: int) -> None:
        """The last draft, of so many tokens, was judged: `text` is what there is now, its last token pending."""
        ...
