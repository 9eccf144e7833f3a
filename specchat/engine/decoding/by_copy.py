"""A model that goes by a copy of its cache, to draft for one of several texts."""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.decoding.cached import ReadsTextsApart
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.decoder import ChainParameters
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout


class ModelByCopy:
    """A `HostModel` for chains, whose passes write to `copy` and read it."""

    def __init__(self, model: ReadsTextsApart, copy: CacheCopy) -> None:
        self.copy, self._model = copy, model
        self.context, self.block, self.vocab = model.context, model.block, model.vocab
        self.logits = model.logits

    def write(self, tokens: Sequence[int], start: int) -> None:
        with self._model.by_copy(self.copy):
            self._model.write(tokens, start)

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        with self._model.by_copy(self.copy):
            return self._model.forward(tokens, start, skip, layout)

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        with self._model.by_copy(self.copy):
            return self._model.draft_chain(tokens, start, chain, skip)
