"""Sizes of what mixtures of experts write between their products in the compiled pass, for plans too."""

from dataclasses import dataclass

from specchat.engine.model.vectors import LANES, panels_for
from specchat.engine.recipe import Recipe

APART = ("sums", "sums of the shared MLP", "inputs", "inputs of the shared MLP")
"""Buffers as wide as hidden states where norms are apart, else the first alone."""


@dataclass(frozen=True)
class MixtureNeed:
    """Values of the buffers that the layers of a model share; a pair is a row with one of its experts.

    Attributes:
        between: float32, gate and up of each pair, or each row's scores of experts, their ranks and those of groups.
        beside: float32, gate and up of the shared MLP for each row.
        rows: float32, buffers as wide as hidden states (see `APART`).
        gates: float32, the share of the shared MLP in each row.
        pairs: float32 shares and int64 experts of the pairs.
        order: int64 of each thread, the pairs by expert.
    """

    between: int = 0
    beside: int = 0
    rows: int = 0
    gates: int = 0
    pairs: int = 0
    order: int = 0

    def bytes(self, threads: int) -> int:
        """Bytes of all of them."""
        return 4 * (self.between + self.beside + self.rows + self.gates) + 12 * self.pairs + 8 * threads * self.order


def mixture_need(recipe: Recipe, rows: int) -> MixtureNeed:
    """The buffers of a pass over `rows` rows; empty for a model without experts."""
    mixtures = recipe.mixtures
    if not mixtures:
        return MixtureNeed()
    top = max(one.top for one in mixtures)
    widest = max(LANES * max(2 * one.top * panels_for(one.each.width), 3 * panels_for(one.count)) for one in mixtures)
    order = 2 * max(one.count for one in mixtures) + 1 + 2 * rows * top
    beside = max(2 * LANES * panels_for(one.shared.width) if one.shared else 0 for one in mixtures)
    wide = rows * recipe.hidden * (len(APART) if any(one.apart for one in mixtures) else 1)
    return MixtureNeed(rows * widest, rows * beside, wide, rows * bool(beside), rows * top, order)
