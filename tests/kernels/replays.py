"""A recorded operation of Triton's interpreter, run on other numbers: numpy's function where that makes the same."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, TensorHandle

from specchat.engine.kernels.interpreter import rows_alone, widened
from tests.kernels.operations import FUNCTIONS

MORE = {name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos", "floor", "ceil")}
MORE |= dict.fromkeys(("minsi", "minui", "minimumf", "minnumf"), np.minimum)
MORE |= dict.fromkeys(("maxsi", "maxui", "maximumf", "maxnumf"), np.maximum)
MORE |= dict.fromkeys(("sdiv", "udiv"), lambda left, right: (left - np.fmod(left, right)) // right)
MORE |= dict.fromkeys(("srem", "urem"), np.fmod) | {"rsqrt": lambda x: 1 / np.sqrt(x)}
"""Functions of arrays beside those of operators, as the interpreter writes them."""

Values = list[Any]
Function = Callable[..., Any]


@np.errstate(all="ignore")
def quick(
    name: str,
    inner: Function,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    ins: tuple[int, ...],
    outs: tuple[int, ...],
    operands: list[np.ndarray],
    results: list[Any],
) -> Callable[[Values], None]:
    """Runs an operation on values at the places `ins` and puts what it makes at `outs`."""
    builder = arguments[0]
    if name == "create_get_program_id":
        (out,), axis = outs, arguments[1]
        return lambda values: values.__setitem__(out, np.array([builder.grid_idx[axis]], np.int32))
    if name == "create_get_num_programs":
        (out,), axis = outs, arguments[1]
        return lambda values: values.__setitem__(out, np.array([builder.grid_dim[axis]], np.int32))
    function = of_numpy(name, arguments, options, operands)
    if function is not None and not outs:
        return lambda values: function(*[values[place] for place in ins])
    if function is not None and len(outs) == 1:
        # Types and shapes are the same each time, and so is whether Triton makes another one of what numpy makes.
        made, expected = function(*operands), results[0].data
        alike = made.__class__ is np.ndarray and made.dtype == expected.dtype and made.shape == expected.shape
        if alike and made.tobytes() == expected.tobytes():
            return placed(function, ins, outs[0])
    return as_asked(inner, arguments, options, ins, outs)


def placed(function: Function, ins: tuple[int, ...], out: int) -> Callable[[Values], None]:
    if len(ins) == 1:
        (only,) = ins

        def one(values: Values) -> None:
            values[out] = function(values[only])

        return one
    if len(ins) == 2:
        left, right = ins

        def two(values: Values) -> None:
            values[out] = function(values[left], values[right])

        return two

    def many(values: Values) -> None:
        values[out] = function(*[values[place] for place in ins])

    return many


def as_asked(
    inner: Function, arguments: tuple[Any, ...], options: dict[str, Any], ins: tuple[int, ...], outs: tuple[int, ...]
) -> Callable[[Values], None]:
    """Ask the interpreter again, with handles of the same types."""

    def run(values: Values) -> None:
        operands = iter([values[place] for place in ins])
        for out, one in zip(outs, handles(inner(*again(arguments, operands), **options)), strict=True):
            values[out] = one.data

    return run


def handles(one: Any) -> list[Any]:
    """Of an argument or result."""
    if one.__class__ is TensorHandle:
        return [one]
    if one.__class__ is core.tensor:
        return [one.handle]
    return [handle for part in one for handle in handles(part)] if one.__class__ in (list, tuple) else []


def again(like: Any, values: Iterator[Any]) -> Any:
    """An argument or result as `like`, of other values."""
    if like.__class__ is TensorHandle:
        return TensorHandle(next(values), like.dtype, like.attr)
    if like.__class__ is core.tensor:
        return core.tensor(TensorHandle(next(values), like.handle.dtype), like.type)
    return like.__class__([again(one, values) for one in like]) if like.__class__ in (list, tuple) else like


def of_numpy(name: str, arguments: tuple[Any, ...], options: dict[str, Any], operands: list[np.ndarray]) -> Any:
    """The function of arrays that an operation may be; None where none is known."""
    found = FUNCTIONS.get(name.removeprefix("create_")) or MORE.get(name.removeprefix("create_"))
    if found is not None:
        return found
    if options:
        return None
    match name:
        case "create_ashr":
            return np.right_shift if all(one.dtype.kind == "i" for one in operands) else None
        case "create_store":
            inside = np.ones(operands[0].shape, bool)
            return lambda pointers, value: interpreter._interpreter.store(pointers, value, inside)
        case "create_masked_store":
            return interpreter._interpreter.store
        case "create_trans":
            order = arguments[2]
            return lambda data: np.transpose(data, order)
        case "create_splat":
            whole = arguments[1].shape
            return lambda data: np.full(whole, data)
        case "create_dot":
            first, second = [widened if one.dtype.scalar == tl.bfloat16 else np.asarray for one in arguments[1:3]]
            kind = operands[2].dtype
            return lambda a, b, d: rows_alone(first(a), second(b), kind) + d
        case "create_fma":
            return lambda x, y, z: x * y + z
        case "create_bitcast":
            into = interpreter._get_np_dtype(arguments[2])
            return lambda data: data.view(into)
        case "create_addptr":
            width = np.array(max(1, arguments[1].get_element_ty().primitive_bitwidth // 8), np.uint64)
            if width == 1:
                return lambda pointer, offset: pointer + offset.astype(np.uint64)
            return lambda pointer, offset: pointer + width * offset.astype(np.uint64)
        case "create_load":
            kind = interpreter._get_np_dtype(arguments[1].get_element_ty())
            whole, nothing = np.ones(operands[0].shape, bool), np.zeros(operands[0].shape, kind)
            return lambda pointers: interpreter._interpreter.load(pointers, whole, nothing, kind)
        case "create_masked_load":
            kind = interpreter._get_np_dtype(arguments[1].get_element_ty())
            if len(operands) == 2:
                empty = np.zeros(operands[0].shape, kind)
                return lambda pointers, mask: interpreter._interpreter.load(pointers, mask, empty, kind)
            return lambda pointers, mask, other: interpreter._interpreter.load(pointers, mask, other, kind)
        case "create_select":
            return np.where
        case "create_axes":
            slices = arguments[2]
            return lambda data: data[slices]
        case "create_broadcast":
            shape = arguments[2]
            return lambda data: np.broadcast_to(data, shape)
        case "create_expand_dims":
            axis = arguments[2]
            return lambda data: np.expand_dims(data, axis)
        case "create_reshape":
            into = arguments[2]
            return lambda data: data.reshape(into)
        case "create_si_to_fp" | "create_fp_ext" | "create_int_cast" | "create_fp_trunc" | "create_fp_to_si":
            if core.bfloat16 in (arguments[1].dtype.scalar, arguments[2].scalar):
                return None
            into = interpreter._get_np_dtype(arguments[2])
            return lambda data: data.astype(into)
        case "apply":
            return summed(arguments[0], operands)
    return None


def summed(reduction: Any, operands: list[np.ndarray]) -> Any:
    """The function of a reduction that is a sum or a maximum."""
    if reduction.__class__ is not ReduceOps:
        return None
    if reduction.combine_fn == tl.standard._sum_combine:
        reduce: Function = np.sum
    elif reduction.combine_fn == tl.standard._elementwise_max:
        reduce = np.nanmax
    else:
        return None
    axis, keep, kind = reduction.axis, reduction.keep_dims, operands[0].dtype
    if axis is None or operands[0].ndim == 1:
        return lambda data: np.array([reduce(data, axis, keepdims=keep)], kind)
    return lambda data: reduce(data, axis, keepdims=keep).astype(kind)
