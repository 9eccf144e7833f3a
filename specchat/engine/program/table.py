"""The functions of an executor, by the operation that each runs, and the features that no function of it has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import Parameter, signature
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
    """An executor's function for each class of operation.

    A function takes what the executor hands on, the operation, and each feature of the operation as a keyword.
    """

    def __init__(
        self, executor: Executor, functions: Mapping[type, Callable[..., Any]], elsewhere: Sequence[str] = ()
    ) -> None:
        """Initialise; features `elsewhere` are those of what functions are handed on, not of the functions.

        Raises:
            TypeError: a function does not name a feature that `LACKING` does not list either, or names another one.
        """
        apart = {*LACKING[executor], *elsewhere}
        self._functions: dict[type, tuple[Callable[..., Any], list[tuple[int, str]]]] = {}
        """Functions with the features that they name, each with the index of the piece that has it."""
        for kind, function in functions.items():
            named = [one.name for one in signature(function).parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
            pieces = kind, *getattr(kind, "pieces", ())
            names = (name for piece in pieces for name in _features(piece))
            wanted = {name for name in names if not {name, f"{kind.__name__}.{name}"} & apart}
            for name in sorted(wanted.symmetric_difference(named)):
                fault = "does not name" if name in wanted else "names"
                raise TypeError(f"{executor}: the function of {kind.__name__} {fault} the feature {name!r}")
            features = [(at, name) for at, piece in enumerate(pieces) for name in _features(piece) if name in named]
            self._functions[kind] = function, features

    def run(self, op: Any, *context: Any) -> Any:
        """Call the function of `op` with `context`, the operation and its features."""
        function, features = self._functions[type(op)]
        pieces = _pieces(op)
        return function(*context, op, **{name: getattr(pieces[at], name) for at, name in features})


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
