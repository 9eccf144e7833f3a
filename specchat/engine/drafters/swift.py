"""SWIFT (Xia et al. 2024): the target drafts for itself with some of its attention and MLP sub-layers skipped.

The skip set is searched while text is generated, unless the pair names one. Skipped attention writes no KV entries.
Those of draft tokens lie after the committed text, and are overwritten when the target verifies.
"""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Chain, Copy, ModelDrafter, Proposal
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW, SkipSearch, share_right, skip_of
from specchat.engine.strategy import Facts, SkippedLayers, Strategy


class SwiftDrafter(ModelDrafter):
    """Drafter that shares the target's weights and cache; needs no draft model."""

    name = "swift"

    def __init__(self, target: CachedModel[Decoder], layers: int, chosen: SkippedLayers | None = None) -> None:
        """Initialise for a target with `layers` layers; what is `chosen` to be skipped ends the search."""
        self._target, self._layers, self._chosen = target, layers, chosen
        self._prompt = 0
        self.forget()

    @property
    def instant(self) -> bool:
        """False before a trial, which takes the host as long as several steps."""
        return self.search.done or (self._steps + 1) % SEARCH_EVERY != 0

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = SkipSearch(self._layers, chosen=self._chosen)
        self._steps = 0

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        if limit <= 0:
            return Copy(strategy=self.name)
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0 and not self.search.done and len(token_ids) - self._prompt > WINDOW:
            self.search.try_set(lambda skip: share_right(self._target.model, token_ids, skip))
        return Chain(self.name, "target", limit, skip=self.search.best)

    def warm(self, prompt: Sequence[int]) -> None:
        self._target.model.likeliest(prompt[:WINDOW], 0, skip_of((), ()))


def _unsupported(facts: Facts) -> str:
    if facts.layers is not None and facts.skipped is not None and facts.skipped >= facts.layers:
        return f"skip names layer {facts.skipped}, and the target has layers 0 to {facts.layers - 1}"
    return ""


STRATEGY = Strategy(
    name="swift",
    group="itself",
    title="SWIFT",
    summary="The target drafts for itself, skipping some of its layers.",
    draft_length=4,
    notes="""Drafting skips some attention and MLP blocks (SWIFT, Xia et al. 2024). A search during replies picks these,
by how many of the last tokens each choice would have drafted right.

```
 layer     1    2    3    4    5    6    7    8
 draft     A M  A .  . M  A M  . .  A M  . M  A M       about half of the blocks
 verify    A M  A M  A M  A M  A M  A M  A M  A M
```

It needs no further memory. *Parameters*: `skip`, which replaces the search, and which `specchat tune swift` writes
([tune.md](tune.md#layers-to-skip)). *Pays* with large targets, whose middle layers change little.""",
    make=lambda parts: SwiftDrafter(parts.target, parts.layers.count, parts.layers.skip),
    needs=("drafting", "skips"),
    layers=4,
    arm="alone",
    condition=_unsupported,
)
