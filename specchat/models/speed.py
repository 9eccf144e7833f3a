"""Estimated speeds of pairs on a machine, from the bytes that a step reads and the memory's bandwidth.

A step of one token reads every weight once, so bytes over bandwidth bound its time from below. Drafting follows the
cost model (`bench/cost_model.py`) at an assumed acceptance.
"""

import re
from dataclasses import dataclass

from specchat.bench.cost_model import even_survival, expected_tokens, speed_up, step_cost
from specchat.config.catalog import Pair
from specchat.engine.memory.need import Place
from specchat.engine.memory.plan import GIB
from specchat.engine.protocol.pair import QUANT_BITS, ModelSource
from specchat.engine.weights.config import ModelConfig
from specchat.models.about import About

ACCEPTED = 0.7
"""Assumed probability that a draft token is accepted after those before it."""
VERIFY = {"cpu": 0.08, "cuda": 0.02}
"""Assumed cost of a further verified token, in plain steps."""
LONGEST = 8
FLUENT = 10.0
"""Tokens a second from which a reply comes faster than most people read it."""
INTERVAL = 1.3
"""A speed is expected within this factor of its estimate."""
_SIZE = re.compile(r"(?<![A-Za-z0-9.])[Ee]?(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])")
_ACTIVE = re.compile(r"(?<![A-Za-z0-9])[Aa](\d+(?:\.\d+)?)[Bb](?![A-Za-z0-9])")
_GGUF_BITS = re.compile(r"[-.](?:I?Q|q)(\d)_")
_NAMED_BITS = (
    (re.compile(r"(?i)(?<![a-z])(awq|gptq|int4|w4a16|nvfp4|mxfp4|4bit)(?![a-z0-9])"), 4.25),
    (re.compile(r"(?i)(?<![a-z])(fp8|int8|w8a8|w8a16|8bit)(?![a-z0-9])"), 8.25),
)
"""Formats that names of repositories end in, 8 bits first where both stand (GPTQ-Int8), and bits of a weight."""


@dataclass(frozen=True)
class SpeedEstimate:
    """Tokens a second, plainly, and drafted by a model; None without one, or where its size is unknown."""

    plain: float
    drafted: float | None


def step_bytes(source: ModelSource, about: About | None) -> float | None:
    """Bytes of weights that a step of one token reads, None where neither files nor names tell.

    Of a model that is not here yet its name tells the size, as published names do: 8B, and 30B-A3B for 3B that a token
    reads.
    """
    if about is not None and about.config is not None and about.format == "safetensors":
        return _read(about.config, bits(source, about), 32.0 if about.quant == "float32" else 16.0) / 8
    if about is not None and about.size:
        return float(about.size)
    name = source.repo or ""
    found = _ACTIVE.findall(name) or [
        str(float(number) / (1000 if unit in "Mm" else 1)) for number, unit in _SIZE.findall(name)
    ]
    return float(found[-1]) * 1e9 * bits(source, None) / 8 if found else None


def _read(config: ModelConfig, in_layers: float, dense: float) -> float:
    """Bits that a step of one token reads; the head is not quantised."""
    layers = sum(layer.active for layer in config.recipe.layers)
    return layers * in_layers + config.recipe.head.parameters * dense


def bits(source: ModelSource, about: About | None) -> float:
    """Bits of a weight as it is run, scales included."""
    stored = next((quant for quant in QUANT_BITS if about is not None and quant == about.quant), None)
    wanted = stored or source.quant
    if wanted in QUANT_BITS:
        return QUANT_BITS[wanted]
    if source.file is not None and (named := _GGUF_BITS.search(source.file)):
        return int(named[1]) + 0.75
    if about is not None:
        return 32 if about.quant == "float32" else 16
    return next((size for form, size in reversed(_NAMED_BITS) if form.search(source.repo or "")), 16)


def estimate(
    pair: Pair, target: About | None, draft: About | None, device: Place, bandwidth: float
) -> SpeedEstimate | None:
    """Estimated speeds of a pair where `bandwidth` bytes a second are read; None where its size is unknown."""
    big = step_bytes(pair.spec.target, target)
    if target is None and pair.requires.step_gib is not None:
        big = pair.requires.step_gib * GIB
    if big is None:
        return None
    plain = bandwidth / big
    if pair.spec.draft is None:
        return SpeedEstimate(plain, None)
    small = step_bytes(pair.spec.draft, draft)
    if small is None:
        return SpeedEstimate(plain, None)
    times = max(
        speed_up(
            expected_tokens(even_survival(ACCEPTED, length)),
            step_cost(length, small / big, 1 + VERIFY[device] * length),
        )
        for length in range(1, LONGEST + 1)
    )
    return SpeedEstimate(plain, plain * max(1.0, times))
