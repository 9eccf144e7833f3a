"""Estimated time that experts in main memory add to a pass on a GPU."""

from math import comb

from specchat.engine.kernels.gpu_shapes import PROMPT_ROWS, expert_tiles
from specchat.engine.memory.need import Model, expert_bytes
from specchat.engine.recipe import Experts


def expert_price(model: Model, rate: float) -> tuple[float, float]:
    """Estimated milliseconds that a token adds, and a token of a prompt, by a bus of `rate` bytes a second.

    A prompt's pass reads an expert once for each tile of rows that have it, and rows choose at random here.
    """
    of_token = of_pass = 0.0
    for one in model.config.recipe.mixtures[: model.experts_in_main]:
        size = expert_bytes(model, one)
        of_token += one.top * size
        of_pass += one.count * size * _read(one)
    return 1e3 * of_token / rate, 1e3 * of_pass / PROMPT_ROWS / rate


def _read(of: Experts) -> float:
    """Times that a pass over PROMPT_ROWS rows reads an expert."""
    rows, chance = PROMPT_ROWS, of.top / of.count
    tile, _ = expert_tiles(rows, of.count, of.top)
    have = (comb(rows, n) * chance**n * (1 - chance) ** (rows - n) for n in range(rows + 1))
    return sum(likely * -(-n // tile) for n, likely in enumerate(have))


def describe_experts(model: Model, rate: float) -> str:
    """Sentence on where the experts of a model on a GPU are, with the price; empty if all are on the GPU."""
    if not model.experts_in_main:
        return ""
    layers = len(model.config.recipe.mixtures)
    token, of_prompt = (f"{ms:.0f}" if ms >= 2 else f"{ms:.1f}" for ms in expert_price(model, rate))
    fewer_bits = "fewer bits a weight (quant) or " if not model.fixed and model.quant not in ("nf4", "fp4") else ""
    return (
        f"Experts of {model.experts_in_main} of {layers} layers lie in main memory: about {token} ms a token, and "
        f"{of_prompt} ms a token of a prompt, at {rate / 1e9:.0f} GB/s. "
        f"With {fewer_bits}a shorter context more of them fit the GPU."
    )
