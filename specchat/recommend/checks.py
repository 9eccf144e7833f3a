"""The checks that decide on drafting, with figures measured on the loaded pair."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.bench.preflight import Preflight
    from specchat.recommend.search import Recommendations, RecommendSearch, Show

SAMPLED = 4
"""Prompts that the best strategy answers once more for its figures."""


def check_lines(search: "RecommendSearch", found: "Recommendations", show: "Show") -> list[str]:
    """The checks, each in a sentence."""
    from specchat.bench.preflight import preflight_lines

    show("measuring what decides", None)
    return ["Before drafting:", *preflight_lines(measured(search, found, show))]


def measured(search: "RecommendSearch", found: "Recommendations", show: "Show") -> "Preflight":
    """Measure the figures that the checks look at."""
    import torch

    from specchat.bench.bandwidth import read_bandwidth
    from specchat.bench.preflight import Preflight
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
    on_gpu = bool(session.info.gpu)
    _, _, length = best.name.partition(" x")
    return Preflight(
        plain_ms=plain_ms,
        bound_ms=1e3 * search.step_bytes / read_bandwidth(torch.device("cuda" if on_gpu else "cpu")),
        checks=[1 + verifying * (cost.ratio - 1) for cost in costs],
        strategy=best.name.partition(" ")[0],
        length=int(length) if length else 0,
        draft=sum(one.draft_ms for one in stats) / max(1, drafted) / plain_ms,
        accepted=sum(one.num_accepted_draft_tokens for one in stats) / max(1, drafted),
        mean_draft=drafted / max(1, steps),
        measured=best.times,
        waited=waited / max(1e-9, waited + ran),
        memory=session.info.memory,
        free=free_memory(),
        prompts=best.prompts,
        exactness=session.info.exactness.rstrip("."),
    )
