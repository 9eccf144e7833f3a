"""The end of a tune: its gain on held-out prompts, and its place on the shelf and in models.toml if that is sure."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specchat.bench.interleaved import STOPS, BenchProgress
from specchat.figures import interval
from specchat.tune import gain
from specchat.tune.gain import Side, TuneComparison
from specchat.tune.order import TuneOrder
from specchat.tune.registry import register
from specchat.tune.shelf import Tuned


@dataclass(frozen=True)
class TuneResult:
    """The product of a tune.

    Attributes:
        kind, key, value: as of `tune.shelf.Tuned`.
        subject: the beginning of a sentence on where its files lie, such as "The draft lies".
        files: the folder with its files; None without any.
        before, after: further held-out figures, by name.
        advice: what may bring a gain where there was none.
    """

    kind: str
    key: str
    subject: str
    files: Path | None
    value: Mapping[str, Any] | None = None
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    advice: str = "More --replies, --steps or prompts closer to yours may help."


def measured(order: TuneOrder, before: Side, after: Side) -> TuneComparison:
    """Held-out speeds of the pair as it is, and as it would be.

    Raises:
        TuneStopped: it is to be stopped.
        Different: a text is not plain decoding's.
        EngineError: a pair cannot be loaded.
    """

    def notify(turn: BenchProgress) -> None:
        order.check_stop("before the end was measured")
        order.report.know(phase="measuring")
        order.report.show(f"held-out prompts by {turn.contender}", turn.fraction)

    with STOPS.counting():
        return gain.compared(before, after, order.questions[1], order.show, notify)


def registered(order: TuneOrder, result: TuneResult, found: TuneComparison) -> list[str]:
    """Put a result on the shelf and into models.toml if the gain is sure; what was found, in sentences.

    Raises:
        ConfigError: models.toml cannot be written.
        OSError: a file cannot be written.
    """
    from specchat.config.paths import user_paths

    before, after, times = found.before, found.after, found.gain
    lines = [
        f"Held-out prompts: {before.tokens_per_second:,.0f} tokens/s before the tune, by {before.strategy}, "
        f"{after.tokens_per_second:,.0f} after it, by {after.strategy}. Each beside plain in the same minutes, that is "
        f"{times.times:.2f} times as fast as before the tune ({interval(times.low, times.high, ' to ')})."
    ]
    figures = {"pair": order.pair.id, "times": [times.times, times.low, times.high]}
    if not times.sure:
        order.report.result(taken=False, busy=found.busy, **figures)
        advice = result.advice
        if found.busy:
            advice = (
                f"The machine was busy: replies waited {found.waited:.0%} of their time for a processor. Run the "
                "command again when less runs."
            )
        return [*lines, f"That is no sure gain, so {order.toml} stays as it is. {advice}"]
    entry = Tuned(
        id=order.folder.name,
        kind=result.kind,
        pair=order.pair.id,
        created=time.time(),
        data=order.data.words,
        used=order.data.used,
        before={**result.before, "tokens_per_second": before.tokens_per_second},
        after={**result.after, "tokens_per_second": after.tokens_per_second},
        key=result.key,
        value=result.value,
    )
    laid = register(entry, result.files, user_paths().tuned, order.toml)
    order.report.result(taken=True, id=laid.id, before=laid.before, after=laid.after, **figures)
    where = f'pair "{laid.pair}" in {order.toml}'
    lies = f"{result.subject} in {laid.folder}, and {where} names it."
    took = lies if result.files else f"It is {laid.key} of {where}."
    return [*lines, f'{took} "specchat tune remove {laid.id}" takes it back.']
