"""How a draft is kept on a GPU where models.toml does not say: the text does not depend on it, speed and memory do."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specchat.engine.model.plan import Model, Place, Plan, fits, quantised

WORTH = 100_000_000
"""Weights from which reading them at 16 bits takes a fair part of a draft pass; below, launches take it. Estimated: on
an RTX 4090 285 launches take 0.8 ms, and 200 MB 0.2 ms."""


def drafting(plan: Plan, available: Mapping[Place, int | None]) -> Plan:
    """`plan` with its draft as it should be kept in the `available` bytes: a small one as it is stored, others as int8,
    and as nf4 where the pair fits no other way."""
    first: Plan | None = None
    for draft in _kept(plan.draft) if plan.draft else ():
        chosen = replace(plan, draft=draft)
        if fits(chosen, available):
            return chosen
        first = first or chosen
    return first or plan


def _kept(draft: Model) -> Iterator[Model]:
    if draft.place == "cpu" or draft.config.parameters() < WORTH:
        yield draft
    if draft.place == "cuda":
        yield replace(quantised(draft, "int8"), chosen=True)
        yield replace(quantised(draft, "nf4"), chosen=True)
