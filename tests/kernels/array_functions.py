"""Functions of numpy that do what an operation of Triton's interpreter does, for many programs at once.

Their arrays have an axis of programs in front, of length 1 where all programs have the same.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, ScanOps

from specchat.engine.kernels.interpreter import rounded, widened
from tests.kernels.operations import FUNCTIONS

EACH = FUNCTIONS | {name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "sqrt", "sin", "cos")}
EACH |= {name: getattr(np, name) for name in ("floor", "ceil", "fabs")}
EACH |= dict.fromkeys(("minsi", "minui", "minimumf", "minnumf"), np.minimum)
EACH |= dict.fromkeys(("maxsi", "maxui", "maximumf", "maxnumf"), np.maximum)
EACH |= dict.fromkeys(("sdiv", "udiv"), lambda left, right: (left - np.fmod(left, right)) // right)
EACH |= dict.fromkeys(("srem", "urem"), np.fmod) | {"rsqrt": lambda x: 1 / np.sqrt(x)}
"""Functions of each number alone, as the interpreter writes them."""
PRODUCTS = 2**16
"""Products of a matrix product that are made at once: more would not stay in the cache."""

Function = Callable[..., Any]


def of_numpy(
    name: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    operands: list[np.ndarray],
    varied: list[bool],
    results: list[Any],
) -> Function | None:
    """The function that an operation may be; None where none is known.

    It takes operands that are `varied` with the axis of programs and the others without.
    """
    function = EACH.get(name.removeprefix("create_")) or (None if options else of_numbers(name, arguments, operands))
    if function is not None:
        rank = results[0].data.ndim
        lower = [(slice(None), *(None,) * (rank - one.ndim)) if one.ndim < rank else None for one in operands]
        return indexed(function, [index if one else None for index, one in zip(lower, varied, strict=True)])
    function = None if options else of_blocks(name, arguments, operands, results)
    return function and indexed(function, [None if one else (None,) for one in varied])


def indexed(function: Function, indices: list[Any]) -> Function:
    """A function of operands with new axes."""
    if not any(indices):
        return function
    return lambda *operands: function(
        *[one if index is None else one[index] for one, index in zip(operands, indices, strict=True)]
    )


def of_numbers(name: str, arguments: tuple[Any, ...], operands: list[np.ndarray]) -> Function | None:
    """A function of each number alone that goes by the operation's arguments."""
    match name:
        case "create_ashr":
            return np.right_shift if all(one.dtype.kind == "i" for one in operands) else None
        case "create_fma":
            return lambda x, y, z: x * y + z
        case "create_bitcast":
            into = interpreter._get_np_dtype(arguments[2])
            return lambda data: data.view(into)
        case "create_addptr":
            width = np.array(max(1, arguments[1].get_element_ty().primitive_bitwidth // 8), np.uint64)
            if width == 1:
                return lambda pointer, offset: pointer + offset.astype(np.uint64)
            return lambda pointer, offset: pointer + np.multiply(offset, width, dtype=np.uint64, casting="unsafe")
        case "create_select":
            return np.where
        case "create_si_to_fp" | "create_fp_ext" | "create_int_cast" | "create_fp_trunc" | "create_fp_to_si":
            return converted(arguments[1].dtype.scalar, arguments[2].scalar)
    return None


def converted(source: Any, kind: Any) -> Function | None:
    """Numbers of one type as numbers of another."""
    if (source, kind) == (core.bfloat16, core.float32):
        return widened
    if source in (core.float32, core.int8) and kind == core.bfloat16:
        return lambda data: rounded(data.astype(np.float32))
    if core.bfloat16 in (source, kind):
        return None
    into = interpreter._get_np_dtype(kind)
    return lambda data: data.astype(into)


def of_blocks(name: str, arguments: tuple[Any, ...], operands: list[np.ndarray], results: list[Any]) -> Function | None:
    """A function of blocks: what it makes of one program's goes by their shape."""
    match name:
        case "create_load" | "create_masked_load":
            kind = interpreter._get_np_dtype(arguments[1].get_element_ty())
            return functools.partial(load, kind)
        case "create_store" | "create_masked_store":
            return store
        case "create_trans":
            order = (0, *[axis + 1 for axis in arguments[2]])
            return lambda data: np.transpose(data, order)
        case "create_dot":
            first, second = [widened if one.dtype.scalar == tl.bfloat16 else np.asarray for one in arguments[1:3]]
            sums = operands[2].dtype
            return lambda a, b, d: products(first(a), second(b), sums) + d
        case "create_splat":
            whole, into = results[0].data.shape, results[0].data.dtype
            return lambda data: np.ascontiguousarray(
                np.broadcast_to(in_front(data, len(whole)), (len(data), *whole)), into
            )
        case "create_broadcast":
            whole = results[0].data.shape
            return lambda data: np.broadcast_to(in_front(data, len(whole)), (len(data), *whole))
        case "create_axes":
            slices = (slice(None), *arguments[2])
            return lambda data: data[slices]
        case "create_expand_dims" | "create_reshape":
            into = results[0].data.shape
            return lambda data: data.reshape(len(data), *into)
        case "create_gather":
            axis = arguments[3] % operands[0].ndim + 1
            return lambda data, places: np.take_along_axis(data, places, axis)
        case "apply":
            return along(arguments[0], operands, results)
    return None


def in_front(data: np.ndarray, rank: int) -> np.ndarray:
    """Blocks with axes in front of theirs, so that they have `rank` of them."""
    return data.reshape(len(data), *(1,) * (rank + 1 - data.ndim), *data.shape[1:])


def as_many(one: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As many numbers as there are pointers, of as many programs."""
    if one.shape == shape:
        return one
    return np.broadcast_to(one.reshape(len(one), *shape[1:]), shape)


@functools.cache
def everywhere(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, bool)


@functools.cache
def nothing(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    return np.zeros(shape, kind)


def load(kind: np.dtype, pointers: np.ndarray, mask: np.ndarray | None = None, other: np.ndarray | None = None) -> Any:
    if mask is None:
        mask = everywhere(pointers.shape)
    shape = (max(len(pointers), len(mask), 1 if other is None else len(other)), *pointers.shape[1:])
    other = nothing(shape, kind) if other is None else as_many(other, shape)
    return interpreter._interpreter.load(as_many(pointers, shape), as_many(mask, shape), other, kind)


def store(pointers: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None) -> None:
    """Store in the order of programs."""
    if mask is None:
        mask = everywhere(pointers.shape)
    shape = (max(len(pointers), len(value), len(mask)), *pointers.shape[1:])
    interpreter._interpreter.store(as_many(pointers, shape), as_many(value, shape), as_many(mask, shape))


def products(a: np.ndarray, b: np.ndarray, sums: np.dtype) -> np.ndarray:
    """`rows_alone` of each program."""
    left, right = a.transpose(2, 0, 1)[..., None], b.transpose(1, 0, 2)[:, :, None]
    (inner, programs, rows, _), columns = left.shape, right.shape[-1]
    if programs != len(b):
        programs = max(programs, len(b))
        left, right = (np.broadcast_to(one, (inner, programs, *one.shape[2:])) for one in (left, right))
    at_once = max(1, PRODUCTS // (inner * rows * columns))
    made = np.empty((programs, rows, columns), sums)
    for start in range(0, programs, at_once):
        part = slice(start, start + at_once)
        of_part: np.ndarray = np.multiply(left[:, part], right[:, part], dtype=sums, order="C")
        made[part] = of_part.sum(0)
    return made


def along(reduction: Any, operands: list[np.ndarray], results: list[Any]) -> Function | None:
    """A sum, a maximum or sums from the first number on, along an axis of one program's block."""
    kind, shape, axis = operands[0].dtype, results[0].data.shape, reduction.axis
    if reduction.__class__ is ScanOps:
        if reduction.combine_fn != tl.standard._sum_combine or reduction.reverse:
            return None
        return lambda data: np.cumsum(data, axis % operands[0].ndim + 1).astype(kind)
    if reduction.__class__ is not ReduceOps:
        return None
    if reduction.combine_fn == tl.standard._sum_combine:
        reduce: Function = np.add.reduce
    elif reduction.combine_fn == tl.standard._elementwise_max:
        reduce = np.fmax.reduce
    elif reduction.combine_fn == tl.standard._elementwise_min:
        reduce = np.fmin.reduce
    else:
        return None
    if axis is None:
        return lambda data: reduce(data.reshape(len(data), -1), 1).astype(kind).reshape(len(data), *shape)
    place = axis % operands[0].ndim + 1
    return lambda data: reduce(data, place).astype(kind).reshape(len(data), *shape)
