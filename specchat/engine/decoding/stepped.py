"""The outcome of a verify step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stepped:
    """One verify step: `tokens` were added, the first `accepted` of them drafted.

    Attributes:
        drafts: the proposed tokens in the order of their nodes, the first of which is node 1.
        confidence: the probability of each, empty where the strategy has none; it is shown, nothing depends on it.
        tested: positions that were judged.
        path: the accepted nodes.
        draft_ms: milliseconds of drafting, without those that the thread waited for a processor.
        verify_ms: the same of verifying.
        parents: the nodes that the drafts follow, empty for a chain.
        strategy: the strategy that drafted.
        sources: the strategies whose tokens these are: two where a second one drafted those from number `switch` on.
        again: choices that were made again, being close.
        likeliest: the token of the target's largest logit after each node, node 0 first, where the proposal asked for
            it: whatever the sampling, so that it tells nothing of the noise.
        begun: nodes that drafting had run the target's first layers over: verifying took less then.
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

    @property
    def accepted(self) -> int:
        return len(self.path)

    @property
    def drafted(self) -> int:
        return len(self.drafts)
