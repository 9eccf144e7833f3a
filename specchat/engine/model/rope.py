"""Rotary position embeddings and their published scalings."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.memory.host_need import CACHE_BLOCK
from specchat.engine.memory.vectors import head_places, whole_vectors
from specchat.engine.recipe import Attention, Recipe, Rope


def tables(
    rope: Rope | None, width: int, length: int, context: int | None = None, places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine for every position; without a `rope` those of the identity.

    Texts have `context` tokens at most, `length` if None. `places` float32 [length, width / 2] are positions by
    rotation, where they are not 0, 1, ... for all.

    Returns:
        cos, sin: float32 [length, width]. The rotation of x is `x * cos + swap(x) * sin`, `swap` exchanging the
        halves of x; the first half of `sin` is negated for that (rotate-half convention of the Hugging Face layout).
    """
    if rope is None:
        return torch.ones(length, width), torch.zeros(length, width)
    inverse, factor = _frequencies(rope, length if context is None else context)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inverse) if places is None else places * inverse
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def turned(
    recipe: Recipe, length: int, context: int | None = None, places: Tensor | None = None
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """The `tables` of each layer for the rotated values of a head in whole vectors (see `vectors.head_places`).

    Layers with the same rotation share them, and those without attention have none.
    """
    computed: dict[tuple[Rope | None, int], tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
    found = []
    for mixer in (layer.mixer for layer in recipe.layers):
        if isinstance(mixer, Attention):
            rope, width = mixer.rope, mixer.rotary_dim
            if (rope, width) not in computed:
                columns = head_places(mixer)[: width // 2 * 2]
                cos, sin = (_placed(table.numpy(), columns) for table in tables(rope, width, length, context, places))
                computed[rope, width] = cos, sin
            found.append(computed[rope, width])
        else:
            found.append((np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32)))
    return found


def _placed(table: NDArray[np.float32], places: list[int]) -> NDArray[np.float32]:
    """Put columns of a table at `places` of whole vectors, with zeros between them."""
    size = whole_vectors(places[-1] + 1)
    if size == len(places):
        return table
    spread = np.zeros((len(table), size), np.float32)
    spread[:, places] = table[:, : len(places)]
    return spread


def tempers(mixer: Attention, length: int) -> Tensor | None:
    """Factors on the queries at each position, float32 [length]; None where all are 1."""
    beta, of = mixer.temper
    positions = torch.arange(length, dtype=torch.float32)
    return 1 + beta * torch.log(1 + torch.floor(positions / of)) if beta else None


def _frequencies(rope: Rope, length: int) -> tuple[Tensor, float]:
    """Inverse frequencies float32 [width / 2] and the factor on cos and sin (1 except for YaRN and LongRoPE)."""
    dim = rope.width
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    inverse: Tensor = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return inverse / float(rope.options["factor"]), 1.0
    if rope.kind == "llama3":
        return _llama3(inverse, rope.options), 1.0
    if rope.kind == "proportional":
        inverse[rope.turning :] = 0.0
        return inverse / float(rope.options.get("factor") or 1.0), 1.0
    if rope.kind == "yarn":
        return _yarn(rope.theta, inverse, dim, rope.options)
    if rope.kind == "longrope":
        return _longrope(inverse, rope.options, length)
    return inverse, 1.0


def _longrope(inverse: Tensor, options: Mapping[str, Any], length: int) -> tuple[Tensor, float]:
    """LongRoPE (Ding et al. 2024): factors on wavelengths, of texts up to the original length or of all longer ones.

    One set serves every text of a cache of `length` positions, so KV entries need not be rotated anew.
    """
    original, longer = options["original_max_position_embeddings"], _is_long(options, length)
    stretch = options.get("factor") or options["max_position_embeddings"] / original
    factor = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    by = torch.tensor(options["long_factor" if longer else "short_factor"], dtype=torch.float32)
    return inverse / by, options.get("attention_factor") or factor


def long_factors(recipe: Recipe, length: int) -> list[bool]:
    """True for each LongRoPE that takes its long factors for texts of up to `length` tokens, so that entries differ."""
    return [_is_long(rope.options, length) for rope in recipe.ropes if rope and rope.kind == "longrope"]


def _is_long(options: Mapping[str, Any], length: int) -> bool:
    original: int = options["original_max_position_embeddings"]
    return length > -(-original // CACHE_BLOCK) * CACHE_BLOCK


def _llama3(inverse: Tensor, options: Mapping[str, float]) -> Tensor:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended."""
    factor, low, high = options["factor"], options["low_freq_factor"], options["high_freq_factor"]
    original = options["original_max_position_embeddings"]
    wavelength = 2 * math.pi / inverse
    smooth = ((original / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * inverse / factor + smooth * inverse


def _yarn(theta: float, inverse: Tensor, dim: int, options: Mapping[str, float]) -> tuple[Tensor, float]:
    """YaRN (Peng et al. 2023): interpolate by the rotations of a dimension in the original context."""
    original = options.get("original_max_position_embeddings") or options["max_position_embeddings"]
    factor = float(options.get("factor") or options["max_position_embeddings"] / original)

    def dimension(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension(options.get("beta_fast") or 32.0)
    high = dimension(options.get("beta_slow") or 1.0)
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    blended = inverse / factor * ramp + inverse * (1 - ramp)
    return blended, _yarn_attention(factor, options)


def _yarn_attention(factor: float, options: Mapping[str, float]) -> float:
    if (stated := options.get("attention_factor")) is not None:
        return float(stated)

    def scale(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    if options.get("mscale") and options.get("mscale_all_dim"):
        return scale(options["mscale"]) / scale(options["mscale_all_dim"])
    return scale(1.0)
