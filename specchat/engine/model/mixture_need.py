"""Sizes of what mixtures of experts write between their products in the compiled pass, for plans too."""

from dataclasses import dataclass

from specchat.engine.model.vectors import LANES, panels_for
from specchat.engine.recipe import Experts, Recipe


@dataclass(frozen=True)
class MixtureNeed:
    """Values of the buffers that the layers of a model share; a pair is a row with one of its experts.

    Attributes:
        between: float32, gate and up of each pair, or each row's scores of the experts.
        sums: float32, outputs of each row.
        pairs: float32 shares and int64 experts of the pairs.
        order: int64 of each thread, the pairs by expert.
    """

    between: int = 0
    sums: int = 0
    pairs: int = 0
    order: int = 0

    def bytes(self, threads: int) -> int:
        """Bytes of all of them."""
        return 4 * (self.between + self.sums) + 12 * self.pairs + 8 * threads * self.order


def mixture_need(recipe: Recipe, rows: int) -> MixtureNeed:
    """The buffers of a pass over `rows` rows; empty for a model without experts."""
    mixtures = [layer.feed for layer in recipe.layers if isinstance(layer.feed, Experts)]
    if not mixtures:
        return MixtureNeed()
    top = max(one.top for one in mixtures)
    widest = max(LANES * max(2 * one.top * panels_for(one.each.width), panels_for(one.count)) for one in mixtures)
    order = 2 * max(one.count for one in mixtures) + 1 + 2 * rows * top
    return MixtureNeed(rows * widest, rows * recipe.hidden, rows * top, order)
