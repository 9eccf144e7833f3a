"""A recorded operation of Triton's interpreter, run on the numbers of many programs at once.

Values that differ between programs have an axis of programs in front, of length 1 where they differ between launches
alone. An operation is numpy's function where that makes the same, else the interpreter's, program by program.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from triton.language import core
from triton.runtime.interpreter import TensorHandle

from tests.kernels.array_functions import Function, of_numpy

Values = list[Any]
Run = Callable[[Values, np.ndarray], None]
"""Runs an operation on the values of programs, whose places in the grid are [programs, 3]."""


FUNCTIONS = dict[tuple[Any, ...], Function | None]()
"""By operation, what is known to make the same; None where that is asked."""


def quick(
    name: str,
    inner: Function,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    ins: tuple[int, ...],
    outs: tuple[int, ...],
    varied: list[bool],
    operands: list[np.ndarray],
    results: list[Any],
) -> Run:
    """Runs an operation on values at the places `ins`, some of which are `varied`, and puts what it makes at `outs`."""
    builder = arguments[0]
    if name == "create_get_program_id":
        (out,), axis = outs, arguments[1]
        return lambda values, programs: values.__setitem__(out, programs[:, axis : axis + 1])
    if name == "create_get_num_programs":
        (out,), axis = outs, arguments[1]
        return lambda values, _: values.__setitem__(out, np.array([[builder.grid_dim[axis]]], np.int32))
    given = vars(builder).values() if name == "apply" else map(told, (*arguments[1:], *options.values()))
    blocks = [(one.dtype, one.shape) for one in (*operands, *[one.data for one in results])]
    key = (name, *given, *varied, *blocks)
    if key not in FUNCTIONS:
        function = of_numpy(name, arguments, options, operands, varied, results)
        FUNCTIONS[key] = function if function and alike(function, varied, operands, results) else None
    function = FUNCTIONS[key]
    if function is None:
        return as_asked(inner, arguments, options, ins, outs, varied)
    return placed(function, ins, outs[0]) if outs else lambda values, _: function(*[values[place] for place in ins])


def told(argument: Any) -> Any:
    """What a function goes by of an argument: of numbers their type."""
    return argument.dtype.name if argument.__class__ is TensorHandle else str(argument)


def alike(function: Function, varied: list[bool], operands: list[np.ndarray], results: list[Any]) -> bool:
    """Whether it makes the same of the numbers of two programs as the interpreter of those of one.

    Types and shapes are the same each time, and so is whether Triton makes another one of what numpy makes.
    """
    if not results:
        return True
    given = [np.stack([one, one]) if two else one for one, two in zip(operands, varied, strict=True)]
    made, expected, programs = function(*given), results[0].data, 2 if any(varied) else 1
    same = made.__class__ is np.ndarray and (made.dtype, made.shape) == (expected.dtype, (programs, *expected.shape))
    return len(results) == 1 and same and made.tobytes() == expected.tobytes() * programs


def placed(function: Function, ins: tuple[int, ...], out: int) -> Run:
    if len(ins) == 1:
        (only,) = ins

        def one(values: Values, _: np.ndarray) -> None:
            values[out] = function(values[only])

        return one
    if len(ins) == 2:
        left, right = ins

        def two(values: Values, _: np.ndarray) -> None:
            values[out] = function(values[left], values[right])

        return two

    def many(values: Values, _: np.ndarray) -> None:
        values[out] = function(*[values[place] for place in ins])

    return many


def of_program(value: np.ndarray, program: int) -> np.ndarray:
    """What one program has of a value that is varied."""
    found: np.ndarray = value[program if len(value) > 1 else 0, ...]
    return found


def as_asked(
    inner: Function,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    ins: tuple[int, ...],
    outs: tuple[int, ...],
    varied: list[bool],
) -> Run:
    """Ask the interpreter again for each program, with handles of the same types."""

    def run(values: Values, programs: np.ndarray) -> None:
        made = list[list[np.ndarray]]()
        places = list(zip(ins, varied, strict=True))
        for program in range(len(programs)):
            given = [of_program(values[place], program) if one else values[place] for place, one in places]
            made.append([one.data for one in handles(inner(*again(arguments, iter(given)), **options))])
        for out, ones in zip(outs, zip(*made, strict=True), strict=True):
            values[out] = np.stack(ones)

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
