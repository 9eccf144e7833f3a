"""What replies on a GPU launch, compiled and captured before the first one asks for it."""

from collections.abc import Callable, Mapping

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.step import Decoding
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.model import DeviceModel
from specchat.engine.drafters.skip_search import WINDOW
from specchat.engine.model.decoder import Skip
from specchat.engine.options import Sampling

PROMPT = WINDOW + 2
DRAFTED = 3
"""Tokens of a draft that has a first pass and later ones."""


def prepare(
    executor: DeviceExecutor,
    target: CachedModel[DeviceModel],
    drafters: Mapping[str, Drafter],
    told: Callable[[str], None],
) -> None:
    """Launch each part of a step once; caches and drafters are then as when just loaded.

    `told` gets each part in words. A machine compiles a kernel once and keeps it; graphs are captured at each load.
    """
    prompt = [0] * max(1, min(PROMPT, target.model.context // 2))
    told("the prompt's passes")
    target.begin(prompt)
    decoding = Decoding(executor, target, Sampling(), prompt, ())
    told("the checks of drafts")
    executor.capture_verify()
    executor.place(prompt)
    for name, drafter in drafters.items():
        told(f"drafting by {name}")
        drafter.begin(prompt)
        decoding.step(drafter, DRAFTED, "coupled")
        decoding.close()
    if "swift" in drafters:
        told("trials of swift")
        target.model.guesses(prompt[:WINDOW], 0, Skip())
    target.keep(0)
    for drafter in drafters.values():
        drafter.forget()
    executor.costs.forget()
    executor.stops.forget()
