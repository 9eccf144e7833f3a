"""The decision on what was measured: the strategy and the setting to have, in sentences."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import delegates, labelled
from specchat.figures import interval
from specchat.recommend.search import CLEAR, Recommendations, VariantSpeed

if TYPE_CHECKING:
    from specchat.config.catalog import Pair


@dataclass(frozen=True)
class Recommended:
    """A decision in sentences.

    Attributes:
        choice: strategy and draft length to write; None to leave them.
        variant: the setting to write as well.
        suggested: a setting that is faster and changes the text.
    """

    lines: list[str]
    choice: tuple[str, int | None] | None = None
    variant: VariantSpeed | None = None
    suggested: VariantSpeed | None = None


def decided(pair: "Pair", found: Recommendations) -> Recommended:
    """The fastest strategy and setting under which the text stays, where they are clearly faster than the present."""
    best = found.best
    by_name = {one.name: one for one in found.strategies}
    present = Speculation.of(pair.strategy, pair.draft_length)
    now = by_name.get(labelled(present.strategy, present.draft_length))
    sure = [one for one in found.variants if one.pays]
    variant = next((one for one in sure if one.variant.same_text), None)
    suggested = next((one for one in sure if not one.variant.same_text), None)
    if variant is not None:
        times, name = best.times * variant.speed.times, f"{variant.case} with {variant.variant.name}"
    else:
        times, name = best.times, best.name
    if times <= 1.0:
        words = f"No strategy is faster than plain decoding here: the nearest, {name}, has {times:.2f}."
        return Recommended([words], suggested=suggested)
    speeds = f"{name} writes {times:.2f} times as fast as plain decoding"
    others = f"The pair has {now.name}, with {now.times:.2f}." if now is not None else ""
    if now is not None and delegates(present.strategy):
        others += " It learns within a chat, and each of these replies was a new one."
    lines = [f"{speeds}. {others}".rstrip()]
    if now is not None and times < CLEAR * now.times:
        return Recommended([*lines, "That is no clear gain, so models.toml stays as it is."], suggested=suggested)
    rival = next((one for one in found.strategies if one.name != best.name and one.high > best.low), None)
    if rival is not None:
        lines.append(f"More measuring could still choose {rival.name} ({interval(rival.low, rival.high)}).")
    strategy, _, length = (variant.case if variant is not None else best.name).partition(" x")
    return Recommended(lines, (strategy, int(length) if length else None), variant, suggested)
