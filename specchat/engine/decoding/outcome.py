"""The outcome of a verify step."""

from typing import NamedTuple

from specchat.dataclass import dataclass


class Logprobs(NamedTuple):
    """Log-probability of a token, and of the `top` alternatives at its position, the largest first."""

    token: int
    value: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class StepOutcome:
    """One verify step: `tokens` were added, the first `accepted` of them drafted.

    Attributes:
        drafts: drafted tokens in the order of their nodes, from node 1 on.
        confidence: probability of each, empty if the strategy has none.
        tested: judged positions.
        path: accepted nodes.
        draft_ms: milliseconds of drafting, without waits of the thread for a CPU.
        verify_ms: milliseconds of verifying, without waits of the thread for a CPU.
        parents: parent node of each drafted token, empty for a chain.
        strategy: strategy of the draft.
        sources: strategies of its tokens: two if a second one drafted from number `switch` on.
        again: close choices that were repeated.
        likeliest: token of the target's largest logit after each node, node 0 first, if the proposal wants it; it
            depends on neither sampling nor noise.
        begun: nodes for which drafting ran the target's first layers, which shortens verifying.
        logprobs: of each of `tokens`, if they are wanted.
        together: replies whose tokens the pass read.
    """

    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    tested: int
    path: tuple[int, ...]
    draft_ms: float
    verify_ms: float
    parents: tuple[int, ...] = ()
    strategy: str = "plain"
    sources: tuple[str, ...] = ()
    switch: int = 0
    again: int = 0
    likeliest: tuple[int, ...] = ()
    begun: int = 0
    logprobs: tuple[Logprobs, ...] = ()
    together: int = 1

    @property
    def accepted(self) -> int:
        return len(self.path)

    @property
    def drafted(self) -> int:
        return len(self.drafts)
