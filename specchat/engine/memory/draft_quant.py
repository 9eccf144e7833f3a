"""Quantisation of a draft on a GPU where models.toml leaves it open: it affects speed and memory, not the text."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specchat.engine.memory.need import Model, Place, quantised
from specchat.engine.memory.plan import Plan, fits

MIN_PARAMETERS = 100_000_000
"""Smallest draft worth quantising; below, launches take most of a pass. Estimated: on an RTX 4090 285 launches take
0.8 ms, and reading 200 MB takes 0.2 ms."""


def drafting(plan: Plan, available: Mapping[Place, int | None]) -> Plan:
    """`plan` with its draft's quantisation for the `available` bytes: none for a small draft, else int8, and nf4 where
    the pair fits no other way."""
    first: Plan | None = None
    for draft in _kept(plan.draft) if plan.draft else ():
        chosen = replace(plan, draft=draft)
        if fits(chosen, available):
            return chosen
        first = first or chosen
    return first or plan


def _kept(draft: Model) -> Iterator[Model]:
    if draft.place == "cpu" or draft.config.parameters() < MIN_PARAMETERS:
        yield draft
    if draft.place == "cuda":
        yield replace(quantised(draft, "int8"), chosen=True)
        yield replace(quantised(draft, "nf4"), chosen=True)
