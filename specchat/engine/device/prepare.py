"""Warm-up of a GPU: compiles and captures the parts of a step before the first reply."""

from collections.abc import Callable, Mapping

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.model import DeviceModel
from specchat.engine.drafters.skip_search import WINDOW
from specchat.engine.options import Sampling

PROMPT = WINDOW + 2
DRAFTED = 3
"""Tokens of a draft with a first pass and later ones, unless passes of a head differ."""


def prepare(
    executor: DeviceExecutor,
    target: CachedModel[DeviceModel],
    drafters: Mapping[str, Drafter],
    notify: Callable[[str], None],
) -> None:
    """Launch each part of a step once, then reset caches and drafters.

    `notify` receives each part in words. Compiled kernels stay on disk; graphs are captured at each load.
    """
    prompt = [0] * max(1, min(PROMPT, target.model.context // 2))
    notify("the prompt's passes")
    target.begin(prompt)
    decoding = Decoding(executor, target, ReplyRules(Sampling()), prompt)
    notify("verifying")
    executor.capture_verify()
    executor.rewind(prompt)
    executor.drafts.whole = True
    for name, drafter in drafters.items():
        notify(f"drafting by {name}")
        drafter.begin(prompt)
        decoding.step(drafter, max(DRAFTED, executor.drafts.longest), "coupled")
        decoding.close()
        drafter.warm(prompt)
    executor.drafts.whole = False
    target.keep(0)
    for drafter in drafters.values():
        drafter.forget()
    executor.costs.forget()
    executor.policies.forget()
