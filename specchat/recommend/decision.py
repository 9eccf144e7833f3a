"""The decision on what was measured: checks, the strategy and the setting to have, in sentences."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import delegates, labelled
from specchat.figures import interval
from specchat.recommend.search import CLEAR, Recommendations, VariantSpeed

if TYPE_CHECKING:
    from specchat.bench.preflight import Preflight
    from specchat.config.catalog import Pair
    from specchat.recommend.search import Recommendations, RecommendSearch, Show


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


SAMPLED = 4
"""Prompts that the best strategy answers once more for its figures."""


def check_lines(search: "RecommendSearch", found: "Recommendations", show: "Show") -> list[str]:
    """The checks, each in a sentence."""
    from specchat.bench.preflight import preflight_lines

    show("measuring what decides", None)
    return ["Before drafting:", *preflight_lines(measured(search, found, show))]


def measured(search: "RecommendSearch", found: "Recommendations", show: "Show") -> "Preflight":
    """Measure the figures that the checks look at."""

    from specchat.bench.bandwidth import read_bandwidth
    from specchat.bench.preflight import BestStrategy, Preflight
    from specchat.bench.verify_cost import verify_cost
    from specchat.engine.hardware.free_memory import free_memory

    session, best = search.session, found.best
    plain = [run.stats for run in search.sampled("plain", SAMPLED) if run.stats is not None]
    runs = search.sampled(best.name, SAMPLED)
    stats = [run.stats for run in runs if run.stats is not None]
    steps, drafted = sum(one.num_steps for one in stats), sum(one.num_draft_tokens for one in stats)
    tokens = max(1, sum(one.completion_tokens for one in plain))
    plain_ms = sum(one.ran_ms for one in plain) / tokens
    verifying = sum(one.verify_ms for one in plain) / tokens / plain_ms
    costs = verify_cost(session.runner, lambda share: show("measuring what decides", share), lambda: True)
    waited, ran = sum(one.waited_ms for one in (*plain, *stats)), sum(one.ran_ms for one in (*plain, *stats))
    on_gpu = bool(session.info.load.gpu)
    _, _, length = best.name.partition(" x")
    return Preflight(
        plain_ms=plain_ms,
        bound_ms=1e3 * search.step_bytes / read_bandwidth("cuda" if on_gpu else "cpu"),
        checks=[1 + verifying * (cost.ratio - 1) for cost in costs],
        best=BestStrategy(
            strategy=best.name.partition(" ")[0],
            length=int(length) if length else 0,
            draft=sum(one.draft_ms for one in stats) / max(1, drafted) / plain_ms,
            accepted=sum(one.num_accepted_draft_tokens for one in stats) / max(1, drafted),
            mean_draft=drafted / max(1, steps),
            measured=best.times,
        ),
        waited=waited / max(1e-9, waited + ran),
        memory=session.info.load.memory,
        free=free_memory(),
        prompts=best.prompts,
        exactness=session.info.notes.exactness.rstrip("."),
    )
