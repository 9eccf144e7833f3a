"""The shipped pairs that suit this machine, and how fast they will be."""

from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specchat.config.catalog import Catalog
    from specchat.models.library import Library
    from specchat.models.offers import Offer
    from specchat.models.speed import SpeedEstimate

ALIKE = 1.3
"""Factor between the needs of pairs that count as about equally large."""


def machine_lines(catalog: "Catalog", library: "Library") -> list[str]:
    """A table of pairs that fit, with estimated speeds, and the one to begin with."""
    from specchat.bench.bandwidth import read_bandwidth
    from specchat.bench.table import aligned
    from specchat.models import words
    from specchat.models.fit import PLACES
    from specchat.models.machine import this_machine
    from specchat.models.offers import offers
    from specchat.models.speed import INTERVAL, estimate

    machine = this_machine()
    fitting = [o for o in offers(catalog, library, machine) if o.declared and o.fit.verdict in PLACES]
    devices = {PLACES[offer.fit.verdict] for offer in fitting}
    bandwidth = {device: read_bandwidth(device) for device in devices}
    estimates = [
        (offer, estimate(offer.pair, offer.target, offer.draft, device, bandwidth[device]))
        for offer in fitting
        for device in (PLACES[offer.fit.verdict],)
    ]
    rows = [("pair", "runs on", "to fetch", "plain", "drafted")]
    for offer, speed in estimates:
        fetch = words.size(offer.size) if offer.missing else "here"
        where = "2 GPUs" if offer.fit.second else offer.fit.verdict
        rows.append((offer.pair.id, where, fetch, *_figures(speed)))
    measured = " and ".join(
        f"the {'GPU' if device == 'cuda' else 'processor'} reads {found / 1e9:,.0f} GB/s"
        for device, found in sorted(bandwidth.items())
    )
    lines = [
        f"Estimated tokens a second, good to a factor of {INTERVAL:g}: {measured}. A step reads every weight once;",
        "drafted, seven of ten draft tokens are assumed to be accepted. Very small models take more than their bytes.",
        "",
        aligned(rows),
    ]
    chosen = suggestion(estimates)
    if chosen is None:
        return [*lines, "No shipped pair writes at reading speed here. The demo pair does, and is tiny."]
    return [
        *lines,
        f'Begin with {chosen.pair.id}: "specchat --pair {chosen.pair.id}". It is the largest that writes faster than '
        f'most people read. "specchat recommend {chosen.pair.id}" then measures what drafts fastest with it.',
    ]


def suggestion(estimates: "list[tuple[Offer, SpeedEstimate | None]]") -> "Offer | None":
    """The largest that writes FLUENT tokens a second or more; of about equally large ones the quickest to fetch."""
    from specchat.models.speed import FLUENT

    fluent = [
        (round(log(_gib(offer)) / log(ALIKE)), -offer.size, -number, offer)
        for number, (offer, speed) in enumerate(estimates)
        if speed is not None and (speed.drafted or speed.plain) >= FLUENT
    ]
    return max(fluent, key=lambda one: one[:3])[3] if fluent else None


def _gib(offer: "Offer") -> float:
    needs = offer.pair.requires
    return needs.vram_gib or needs.ram_gib or 1.0


def _figures(speed: "SpeedEstimate | None") -> tuple[str, str]:
    if speed is None:
        return "?", "?"
    return f"{speed.plain:,.1f}", "" if speed.drafted is None else f"{speed.drafted:,.1f}"
