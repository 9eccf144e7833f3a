"""The row-wise kernels as a step launches them, at Qwen3-8B's shapes: 4096 wide, 32 heads, 8 kv, 128 a head."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, bfloat16, empty, int32, uint8

from specchat.engine.kernels import activation, embed, layer_inputs, norm, rope
from specchat.engine.kernels.ahead import Ahead
from specchat.engine.kernels.gpu_shapes import AHEAD_PART, WIDEST
from specchat.engine.kernels.kv_entries import KvEntries
from tests.kernels.compiled import Case, launched

ROWS, HIDDEN, SPLITS, VOCAB, CAPACITY, EPS = 16, 4096, 4, 151_937, 4099, 1e-6
FLAG = empty(1, dtype=int32)
TOKENS = empty(ROWS, dtype=int32)
AHEAD = Ahead(empty(4 * AHEAD_PART, dtype=uint8), 4)


def _halves(*shape: int) -> Tensor:
    return empty(shape, dtype=bfloat16)


def _embedded(name: str, hidden: int = HIDDEN, **options: Any) -> Case:
    table = _halves(hidden).expand(VOCAB, hidden)
    return launched(name, embed._embed, lambda: embed.embed(TOKENS, table, empty(ROWS, hidden), ROWS, **options))


def _normed(
    name: str,
    hidden: int = HIDDEN,
    weights: int = 1,
    splits: int = SPLITS,
    changed: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Case:
    partials, flag = (empty(splits, ROWS, hidden), FLAG) if splits else (None, None)
    weight, out = _halves(weights * hidden) if weights else None, _halves(ROWS, hidden)
    update = norm.ResidualUpdate(empty(ROWS, hidden), skip=flag, **changed)
    return launched(
        name,
        norm._add_rms_norm,
        lambda: norm.add_rms_norm(update, partials, norm.OtherNorm(weight, EPS, out), ROWS, **options),
    )


def _rotated(
    name: str,
    dim: int,
    width: int = 0,
    normed: int = 1,
    heads: int = 32,
    held: int = CAPACITY,
    of_value: rope.NormOf | None = None,
    temper: Tensor | None = None,
    **options: Any,
) -> Case:
    """Queries and keys with norms of so many heads together."""
    kv_heads, queries = heads // 4, heads * (1 + options.get("gated", False))
    partials, table = empty(SPLITS, ROWS, (queries + 2 * kv_heads) * dim), empty(CAPACITY, (width or dim) // 2)
    norms = [(_halves(count * dim), EPS) if normed else None for count in ((heads, kv_heads) if normed > 1 else (1, 1))]
    query, cache = _halves(ROWS, heads, dim), _halves(kv_heads, held, dim)
    at, turns = rope.RopeRows(ROWS, FLAG, TOKENS, FLAG, temper=temper), rope.Turns(table, table, width or dim)
    of_heads, entries = rope.RopeNorms(*norms, of_value), KvEntries(cache, cache)
    return launched(
        name,
        rope._rope_and_write,
        lambda: rope.rope_and_write(partials, of_heads, turns, at, query, entries, **options),
    )


def _gated(name: str, by: activation.Activation, columns: int = 2 * 12_288) -> Case:
    partials, out = empty(SPLITS, ROWS, columns), _halves(ROWS, 12_288)
    curve = activation.Curve(*[empty(1)] * 4) if by == "xielu" else None
    return launched(name, activation._gate_mul, lambda: activation.gate_mul(partials, out, ROWS, FLAG, by, curve))


OTHERS = [norm.OtherNorm(empty(HIDDEN), EPS, _halves(ROWS, HIDDEN)) for _ in range(2)]
AFTER = norm.NormOf(empty(HIDDEN), EPS)
OF_VALUES = empty(256), EPS
LAYERS, SIZE = 32, 256
TABLE = _halves(LAYERS * SIZE).expand(4096, LAYERS * SIZE)
INPUTS = empty(ROWS, LAYERS, SIZE)

CASES = [
    _embedded("embed"),
    _embedded("embed, scaled", scale=2.0),
    _embedded("embed, normed", WIDEST, eps=EPS),
    _normed("norm"),
    _normed("norm without partials", splits=0),
    _normed("norm, widest", WIDEST),
    _normed("norm, centred", centred=True),
    _normed("norm, centred, and a bias", weights=2, centred=True),
    _normed("norm, weights ahead", ahead=AHEAD),
    _normed("norm, scaled", changed={"factor": 0.22}),
    _normed("norm and two others", others=OTHERS),
    _normed("norm of what is added", weights=0, changed={"after": AFTER}),
    _normed(
        "norm of what is added, and a factor at the end",
        weights=0,
        changed={"after": AFTER, "scalar": empty(1), "earlier": FLAG},
    ),
    _rotated("rope, head norms", 128),
    _rotated("rope, head norms, weights ahead", 128, ahead=AHEAD),
    _rotated("rope, 256 a head", 256),
    _rotated("rope, 256 a head, of a part, gates", 256, 64, gated=True),
    _rotated("rope, 80 a head", 80, normed=0),
    _rotated("rope, a norm of all heads", 128, normed=32),
    _rotated("rope, norms of values, a ring", 256, held=1031, of_value=OF_VALUES),
    _rotated("rope, norms of values, 512 a head", 512, of_value=(empty(512), EPS)),
    _rotated("rope, queries that grow", 128, normed=0, temper=empty(CAPACITY)),
    _gated("silu", "silu"),
    _gated("gelu", "gelu_tanh"),
    _gated("clamped gate", "clamped_swiglu"),
    _gated("squared ReLU alone", "relu2", 12_288),
    _gated("xIELU alone", "xielu", 12_288),
    launched(
        "inputs of layers",
        layer_inputs._make_inputs,
        lambda: layer_inputs.make_inputs(
            TOKENS, TABLE, empty(SPLITS, ROWS, LAYERS * SIZE), empty(SIZE), EPS, 0.5, INPUTS, ROWS
        ),
    ),
    launched(
        "gate on inputs of layers",
        layer_inputs._gate_input,
        lambda: layer_inputs.gate_input(
            empty(SPLITS, ROWS, SIZE), INPUTS[:, 0], _halves(ROWS, SIZE), ROWS, FLAG, "gelu_tanh"
        ),
    ),
]
