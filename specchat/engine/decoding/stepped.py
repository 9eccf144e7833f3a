"""The outcome of a verify step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stepped:
    """One verify step: `tokens` were added, the first `accepted` of them drafted. Times in milliseconds,
    but for what the thread waited for a processor.

    `drafts` are the tokens that were proposed, in the order of their nodes, the first of which is node 1; `parents` the
    nodes that they follow, empty for a chain. `path` are the nodes that stayed, `tested` counts the places that were
    judged. `confidence` is the probability of each token, empty where the family has none to tell: it is shown, nothing
    depends on it. `switch` counts the first drafts of one that two made, one after the other; 0 where one made all.
    `again` counts the choices that were made again, being close. `likeliest` is the token of the target's largest logit
    after each node, node 0 first, where the drafter wanted to know: whatever the sampling, so that it tells nothing of
    the noise. `begun` counts the nodes that drafting had run the target's first layers over: the check took less then.
    """

    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    confidence: tuple[float | None, ...]
    tested: int
    path: tuple[int, ...]
    draft_ms: float
    verify_ms: float
    parents: tuple[int, ...] = ()
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
