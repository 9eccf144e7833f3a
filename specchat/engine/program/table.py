"""The functions of an executor, by the operation that each runs, and the features that no function of it has."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import signature
from types import CodeType, FunctionType
from typing import Any, Literal

from specchat.engine.program.ops import Mix, Program
from specchat.engine.recipe import Norm

Executor = Literal["the reference", "the compiled pass", "the GPU kernels"]
_LATER, _CENTRED = "attention to later tokens", "norms of values less their mean"
_CURVES = {"Mix.curve": "experts with xIELU"}
LACKING: dict[Executor, dict[str, str]] = {
    "the reference": _CURVES,
    "the compiled pass": {
        "causal": _LATER,
        "Attend.centred": _CENTRED,
        "Add.centred": _CENTRED,
        "Mix.centred": _CENTRED,
        **_CURVES,
    },
    "the GPU kernels": {
        "causal": _LATER,
        "Attend.centred": _CENTRED,
        "Add.centred": _CENTRED,
        "Mix.centred": _CENTRED,
        **_CURVES,
    },
}
"""Features that an executor does not have, with what a person calls them: by name, or by operation and name."""


class OpTable:
    """An executor's functions, each for the class of operation that annotates its last parameter.

    A function takes what the executor hands on, then the operation, whose features it reads.
    """

    def __init__(self, executor: Executor, *functions: Callable[..., Any], elsewhere: Sequence[str] = ()) -> None:
        """Initialise; features `elsewhere` are those of what functions are handed on, not of the functions.

        Raises:
            TypeError: a function does not read a feature that `LACKING` does not list either.
        """
        apart = {*LACKING[executor], *elsewhere}
        self._functions = {[*signature(one).parameters.values()][-1].annotation: one for one in functions}
        for kind, function in self._functions.items():
            names = {name for piece in (kind, *getattr(kind, "pieces", ())) for name in _features(piece)}
            for name in sorted(names - _read(function)):
                if not {name, f"{kind.__name__}.{name}"} & apart:
                    raise TypeError(f"{executor}: the function of {kind.__name__} does not read the feature {name!r}")

    def run(self, op: Any, *context: Any) -> Any:
        """Call the function of `op` with `context` and the operation."""
        return self._functions[type(op)](*context, op)


def unsupported(program: Program, executor: Executor) -> str:
    """A feature of a program that an executor does not have, in words; empty where it has all."""
    lacking = LACKING[executor]
    if program.parallel and "parallel" in lacking:
        return f"{lacking['parallel']}: not in {executor}"
    for op in program.kinds:
        for piece in (*_pieces(op), *_norms(op)):
            for name, value in _values(piece):
                words = lacking.get(name) or lacking.get(f"{type(op).__name__}.{name}")
                if words and value != _features(piece.__class__)[name]:
                    return f"{words}: not in {executor}"
    return ""


def _norms(op: Any) -> Iterator[Any]:
    return (value for piece in _pieces(op) for value in vars(piece).values() if isinstance(value, Norm))


def _read(function: Callable[..., Any]) -> set[str]:
    """Names that a function reads, as of attributes, and those that functions of its package read which it calls."""
    found, functions = set[str](), [function]
    package = function.__module__.rpartition(".")[0]
    for one in functions:
        assert isinstance(one, FunctionType)
        codes = [one.__code__]
        for code in codes:
            codes += [part for part in code.co_consts if isinstance(part, CodeType)]
            known = (one.__globals__.get(name) for name in code.co_names)
            called = [other for other in known if isinstance(other, FunctionType) and other not in functions]
            functions += [other for other in called if other.__module__.startswith(package)]
            found.update(code.co_names)
    return found


@cache
def _features(piece: type) -> dict[str, Any]:
    """Defaults of the features of an operation or of a piece of a recipe, by name."""
    return {one.name: one.default for one in fields(piece) if one.default is not MISSING}


def _values(piece: Any) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(piece, name)) for name in _features(piece.__class__))


def _pieces(op: Any) -> tuple[Any, ...]:
    """An operation, and the pieces of the recipe whose features it has."""
    of = getattr(op, "of", None)
    if isinstance(op, Mix):
        return op, op.of, op.of.each
    return (op,) if of is None else (op, of)
