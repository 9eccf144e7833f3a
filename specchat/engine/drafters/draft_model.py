"""Drafting by a small model of the same family (Leviathan et al. 2023): a chain, or a tree.

Where the model is undecided between two tokens, a chain takes one and a tree both (EAGLE-2, Li et al. 2024).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from time import perf_counter

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Chain, Copy, ModelDrafter, Proposal, Role, Tree
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.parts import Parts
from specchat.engine.strategy import Strategy

LEAST = 0.3
"""Least value of a path of a draft tree."""


class DraftModelDrafter(ModelDrafter):
    """Drafter of a chain. The model samples with the target's options and noise, so that both mostly choose alike."""

    shortest = 2
    """Least length of a text to draft for."""

    def __init__(self, name: str, role: Role, draft: CachedModel[Decoder]) -> None:
        self.name, self.role, self.draft = name, role, draft
        self._proposed = 0
        self._read = Mean()
        """Milliseconds to read a token."""

    @property
    def instant(self) -> bool:
        return self.draft.asynchronous

    @property
    def repeats(self) -> bool:
        return self.draft.asynchronous and self.role == "draft"

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self.draft.rewind(prompt)

    def forget(self) -> None:
        self.draft.keep(0)

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        limit = min(limit, self.draft.model.context - len(token_ids))
        if limit <= 0 or len(token_ids) < self.shortest:
            return Copy(strategy=self.name)
        if self.unread(token_ids):
            for _ in self.reading(token_ids):
                pass
        self._proposed = len(token_ids)
        return self._proposal(limit)

    def reading(self, token_ids: Sequence[int], clock: Callable[[], float] = perf_counter) -> Iterator[None]:
        """Let the model read the `unread` tokens, a block at each `next`, in any thread; `clock` measures the cost in
        seconds."""
        unread, seconds = self.unread(token_ids), 0.0
        try:
            while self.unread(token_ids):
                started = clock()
                self.draft.fill(token_ids[:-1])
                seconds += clock() - started
                yield
        finally:
            if (read := unread - self.unread(token_ids)) > 0:
                self._read.add(1e3 * seconds / read)

    def unread(self, token_ids: Sequence[int]) -> int:
        """Count tokens that the model must read before it can draft; 0 if `token_ids` exceeds its context.

        A first pass reads the last two tokens at least: after full acceptance the cache lacks both.
        """
        known = len(self.draft.tokens) + self.draft.read_again
        return max(0, len(token_ids) - known) if len(token_ids) < self.draft.model.context else 0

    def reading_ms(self, token_ids: Sequence[int]) -> float:
        return self.unread(token_ids) * self._read.value

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        if outcome.drafted:
            self.draft.hold(token_ids, self._held(token_ids, outcome))

    def extend(self, token_ids: Sequence[int], copied: int, limit: int) -> Chain | None:
        if self.role != "draft":  # heads draft from the target's states, which are not there for these tokens
            return None
        proposal = self.propose(token_ids, copied + limit)
        return proposal if isinstance(proposal, Chain) and proposal.limit > copied else None

    def observe_extension(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        self.observe(token_ids, outcome)

    def _proposal(self, limit: int) -> Proposal:
        return Chain(self.name, self.role, limit)

    def _held(self, token_ids: Sequence[int], outcome: StepOutcome) -> int:
        """Count tokens of the text now in the cache: all but the last draft token went through the model."""
        return min(self._proposed + outcome.drafted - 1, len(token_ids) - 1)


class DraftTreeDrafter(DraftModelDrafter):
    """Drafter of a tree, which shares the draft model and its cache with the chain's drafter."""

    @property
    def repeats(self) -> bool:
        return False

    def _proposal(self, limit: int) -> Proposal:
        return Tree(self.name, self.role, limit, LEAST)

    def _held(self, token_ids: Sequence[int], outcome: StepOutcome) -> int:
        # The model ran over all but the last token of the accepted path.
        return max(self._proposed, len(token_ids) - 2)


def _chain(parts: Parts) -> DraftModelDrafter:
    assert parts.draft is not None
    return DraftModelDrafter(DRAFT.name, "draft", parts.draft)


def _tree(parts: Parts) -> DraftModelDrafter:
    assert parts.draft is not None
    return DraftTreeDrafter(DRAFT_TREE.name, "draft", parts.draft)


DRAFT = Strategy(
    name="draft",
    group="model",
    title="Draft model",
    summary="A small model drafts, the target verifies.",
    draft_length=5,
    notes="""It drafts a chain, token by token (Leviathan et al. 2023, Chen et al. 2023), and ends it before one that is
unlikely to pay. On a processor a small model also copies within its chain
([cpu-step.md](cpu-step.md#chains-in-one-call)). *Parameters*: `draft` in models.toml, its device, its
[vocabulary](draft-vocabulary.md); its tokenizer may be [another one](other-tokens.md). *Pays* where the model costs a
tenth of the target or less and mostly agrees with it: prose, code, explanations. It does not pay for replies that take
less time than its reading of the prompt.""",
    make=_chain,
    needs=("drafting", "draft"),
    arm="yes",
)
DRAFT_TREE = Strategy(
    name="draft-tree",
    group="model",
    title="Draft tree",
    summary="The small model drafts a tree: several tokens where it is unsure.",
    draft_length=12,
    notes="""SpecInfer (Miao et al. 2024), grown as in EAGLE-2 (Li et al. 2024): [trees.md](trees.md). *Pays* where
verifying further tokens is nearly free, as with 16-bit weights on a GPU, and the draft model is often unsure.""",
    make=_tree,
    needs=("drafting", "trees", "draft trees", "draft"),
    arm="yes",
    tree_of="draft",
)
