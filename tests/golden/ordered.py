"""What torch computes in an order of our own: libraries sum in another one on each kind of processor.

Products of float32 are exact in float64, in which they are added one after the other; functions are worked out with
more bits than are kept. Both are rounded once, so that bits are the same on all processors of x86-64.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

MATRICES = 200
"""Most that are held in float64."""


@njit(cache=True)
def _summed(left, right, out):  # type: ignore[no-untyped-def]
    """Add to out float64 [batch, rows, columns] the products of left [batch, rows, inner] and right."""
    for batch in range(left.shape[0]):
        for row in range(left.shape[1]):
            for inner in range(left.shape[2]):
                value = left[batch, row, inner]
                for column in range(right.shape[2]):
                    out[batch, row, column] += value * right[batch, inner, column]


def doubled(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().double().numpy())


def product(left: Tensor, right: Tensor) -> Tensor:
    """left [batch, rows, inner] times right [batch, inner, columns], in float64."""
    return added_up(left, doubled(right))


def added_up(left: Tensor, right: np.ndarray) -> Tensor:
    out = np.zeros((left.shape[0], left.shape[1], right.shape[2]))
    _summed(doubled(left), right, out)
    return torch.from_numpy(out)


DOUBLED: dict[Any, tuple[Tensor, np.ndarray]] = {}
"""Matrices in float64 with those that they were made of, whose addresses stay their own so."""


def by_weights(left: Tensor, weights: Tensor) -> Tensor:
    """left [rows, inner] times weights [inner, columns] in float64, to which each matrix is converted once."""
    version = 0 if weights.is_inference() else weights._version
    key = weights.data_ptr(), weights.dtype, weights.shape, weights.stride(), version
    if key not in DOUBLED:
        while len(DOUBLED) >= MATRICES:
            del DOUBLED[next(iter(DOUBLED))]
        DOUBLED[key] = weights, doubled(weights[None])
    return added_up(left[None], DOUBLED[key][1])[0]


def summed(x: Tensor, axes: Any, keep: bool) -> Tensor:
    """The sum over some axes, in float64."""
    axes = range(x.dim()) if axes is None or axes == [] else [axis % x.dim() for axis in axes]
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    flat = doubled(x.permute(*rest, *axes)).reshape(-1, math.prod([x.shape[axis] for axis in axes]))
    # Added one after the other, from a zero without a sign.
    total = flat.cumsum(1)[:, -1] + 0.0 if flat.shape[1] else np.zeros(len(flat))
    made = torch.from_numpy(total).view([x.shape[axis] for axis in rest])
    for axis in sorted(axes) if keep else ():
        made = made.unsqueeze(axis)
    return made


def smooth(function: Callable[..., Any], *operands: Any) -> Tensor:
    """A function of each number, in the 80 bits of x87's registers, rounded to float64."""
    with np.errstate(all="ignore"):
        made = function(*[np.asarray(one, np.longdouble) for one in operands])
    return torch.from_numpy(np.asarray(made, np.float64))


def mm(left: Tensor, right: Tensor) -> Tensor:
    return by_weights(left, right).to(left.dtype)


def addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    assert beta == alpha == 1
    return (bias.double() + by_weights(left, right)).to(left.dtype)


def bmm(left: Tensor, right: Tensor) -> Tensor:
    return product(left, right).to(left.dtype)


def mv(left: Tensor, right: Tensor) -> Tensor:
    return mm(left, right[:, None])[:, 0]


def packed(weight: Tensor) -> Tensor:
    """Stands for FBGEMM's own order of weights in float16."""
    return weight.half()


def packed_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    made = by_weights(x.reshape(-1, x.shape[-1]), weight.T).view(*x.shape[:-1], len(weight))
    return (made if bias is None else made + bias.double()).to(x.dtype)


def mean(x: Tensor, axes: Any = None, keep: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    made = summed(x, axes, keep)
    return (made * (made.numel() / x.numel())).to(dtype or x.dtype)


def sum_of(x: Tensor, axes: Any = None, keep: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    if not x.is_floating_point():
        return aten.sum.dim_IntList(x, axes, keep, dtype=dtype)
    return summed(x, axes, keep).to(dtype or x.dtype)


def norm(
    x: Tensor, order: float = 2, axes: Any = None, keep: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    assert order == 2
    return summed(x.double().square(), axes, keep).sqrt().to(dtype or x.dtype)


def cumsum(x: Tensor, axis: int) -> Tensor:
    return torch.from_numpy(np.cumsum(doubled(x), axis)).to(x.dtype) if x.is_floating_point() else aten.cumsum(x, axis)


def softmax(x: Tensor, axis: int, _: bool = False) -> Tensor:
    if x.numel() == 0:
        return x.clone()
    raised = smooth(np.exp, x.double() - x.double().amax(axis, keepdim=True))
    return (raised / summed(raised, [axis], True)).to(x.dtype)


def log_softmax(x: Tensor, axis: int, _: bool = False) -> Tensor:
    lowered = x.double() - x.double().amax(axis, keepdim=True)
    return (lowered - smooth(np.log, summed(smooth(np.exp, lowered), [axis], True))).to(x.dtype)


def logsumexp(x: Tensor, axes: Any, keep: bool = False) -> Tensor:
    most = x.double().amax(axes, keepdim=True)
    made = smooth(np.log, summed(smooth(np.exp, x.double() - most), axes, True)) + most
    return (made if keep else made.squeeze(axes)).to(x.dtype)


def attention(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None = None, *rest: Any, **options: Any
) -> Tensor:
    """Of query [batch, heads, rows, size] with keys and values of as many heads or of fewer."""
    assert not any(rest)
    scale, repeats = options.get("scale"), query.shape[1] // keys.shape[1]
    keys, values = (each.repeat_interleave(repeats, 1) for each in (keys, values))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = product(query.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2)).view(*query.shape[:3], -1) * scale
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf")) if seen.dtype == torch.bool else scores + seen.double()
    weights = softmax(scores, -1)
    return product(weights.flatten(0, 1), values.flatten(0, 1)).view(*query.shape[:3], -1).to(query.dtype)


ORDERED: dict[Any, Callable[..., Any]] = {
    aten.mm.default: mm,
    aten.addmm.default: addmm,
    aten.bmm.default: bmm,
    aten.mv.default: mv,
    aten.fbgemm_linear_fp16_weight_fp32_activation.default: packed_product,
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.sum.default: sum_of,
    aten.sum.dim_IntList: sum_of,
    aten.linalg_vector_norm.default: norm,
    aten.cumsum.default: cumsum,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.logsumexp.default: logsumexp,
    aten.scaled_dot_product_attention.default: attention,
}
SMOOTH: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
    "tanh": np.tanh,
    "hypot": np.hypot,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
"""Functions of each number by itself, of which a library may round the last bit otherwise."""
EXACT = {
    "_local_scalar_dense", "_to_copy", "_unsafe_view", "abs", "add", "add_", "alias", "all", "amax", "amin",
    "aminmax", "any", "arange", "argmax", "argsort", "as_strided", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cat", "clamp", "clamp_min", "clone", "copy_", "detach", "div", "div_", "embedding", "empty",
    "empty_like", "eq", "equal", "expand", "fill_", "full", "full_like", "gather", "ge", "gt", "index", "index_copy_",
    "index_put_", "index_select", "is_same_size", "isfinite", "le", "lift_fresh", "logical_and", "logical_not", "lt",
    "masked_fill", "max", "maximum", "min", "minimum", "mul", "mul_", "ne", "neg", "new_empty", "new_full",
    "new_zeros", "nonzero", "ones", "permute", "reciprocal", "remainder", "repeat", "repeat_interleave", "reshape",
    "resize_", "roll", "rsub", "scalar_tensor", "scatter", "scatter_", "select", "set_", "slice", "sort", "split",
    "split_with_sizes", "squeeze", "stack", "sub", "sub_", "t", "topk", "transpose", "tril", "triu", "unbind",
    "unfold", "unsqueeze", "view", "where", "zero_", "zeros", "zeros_like",
}  # fmt: skip
"""Operations whose bits every processor agrees on, each of its numbers being rounded once."""

NAMES: dict[Any, str] = {}
"""What operations are called in `SMOOTH` and `EXACT`."""


class InOneOrder(TorchDispatchMode):
    """Computes so what torch is asked for meanwhile; raises NotImplementedError for what is in no list."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports a compiler, to keep it from compiling this."""
        return False

    def __enter__(self) -> Any:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        # Which torch does without asking the mode.
        self._packing, torch.fbgemm_pack_gemm_matrix_fp16 = torch.fbgemm_pack_gemm_matrix_fp16, packed
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.fbgemm_pack_gemm_matrix_fp16 = self._packing
        torch.set_num_threads(self._threads)
        super().__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        del types
        options = options or {}
        name = NAMES.get(function)
        if name is None:
            name = NAMES[function] = function._schema.name.partition("::")[2]
        if name in EXACT:
            return function(*arguments, **options)
        if found := ORDERED.get(function):
            return found(*arguments, **options)
        floats = [one for one in arguments if isinstance(one, Tensor) and one.is_floating_point()]
        if not floats:
            return function(*arguments, **options)
        if name in SMOOTH:
            assert not options, name
            return smooth(SMOOTH[name], *arguments).to(floats[0].dtype)
        with self:  # whose parts are asked for again
            made = function.decompose(*arguments, **options)
        if made is NotImplemented:
            raise NotImplementedError(f"{function}: it is in no list of what has one order")
        return made
