"""Programs of interpreted kernels, run again as they went before: operations of numpy, without Triton's language.

The first program with arguments of some types and constants is interpreted, the second one is recorded as well, and
those after it are the recorded operations on their own numbers. Where a kernel looks at a number (the end of a loop, a
branch) the record forks. What depends on no argument is worked out once.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceScanOpInterface, TensorHandle

from tests.kernels.replays import again, handles, quick

Values = list[Any]
"""An array for each place of a trace."""
ORDERED = ("create_load", "create_masked_", "create_store", "create_atomic", "create_get_program", "create_get_num")
"""Operations that are never left out, however well known their operands are."""
PLACES = 20_000
"""Values of a kernel that are kept track of; a kernel of more is interpreted."""


@dataclass(frozen=True)
class Operation:
    """One of a program.

    `ins` are the places of its operands that are others in each program, `outs` those of what it makes, as `like` is.
    """

    name: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    like: Any


@dataclass
class Stretch:
    """Operations up to the next number that a kernel looks at, at `place`, and what follows each."""

    operations: list[Operation] = field(default_factory=list)
    runs: list[Callable[[Values], None]] = field(default_factory=list)
    place: int = -1
    look: Callable[[Any], int] = int
    after: dict[int, "Stretch"] = field(default_factory=dict)


@dataclass
class Trace:
    """How programs of one kernel go; `start` has what is the same in each, and None for the rest."""

    start: Values
    first: Stretch = field(default_factory=Stretch)


class Recorder:
    """Records one program of a trace from the end of `path` on; up to there its values are those in `values`.

    It is `lost` where the program goes another way before: the language does some things once, and remembers them.
    """

    def __init__(self, trace: Trace, values: Values, path: list[tuple[Stretch, int]]) -> None:
        self.trace, self.values, self.inside, self.lost = trace, values, False, False
        self.places = {id(one): place for place, one in enumerate(values) if one is not None}
        self.past: Iterator[Operation] = iter([one for stretch, _ in path for one in stretch.operations])
        self.seen = iter([(stretch.place, value) for stretch, value in path])
        self.left = sum(len(stretch.operations) for stretch, _ in path) + len(path)
        self.stretch = path[-1][0].after.setdefault(path[-1][1], Stretch()) if path else trace.first

    def place(self, value: Any, same: bool) -> int:
        """Where a value is; a new one for it, which starts with it if it is the `same` in each program."""
        found = self.places.get(id(value))
        if found is None:
            found = self.places[id(value)] = len(self.trace.start)
            self.lost = self.lost or found > PLACES
            self.trace.start.append(value if same else None)
            self.values.append(value)
        return found

    def varies(self, handle: Any) -> bool:
        """Whether a value is another one in each program, as far as that is known."""
        place = self.places.get(id(handle.data))
        return place is not None and self.trace.start[place] is None

    def _others(self, operands: list[Any]) -> tuple[int, ...]:
        return tuple(self.places[id(one.data)] for one in operands if self.varies(one))

    def operate(self, name: str, inner: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What `inner` makes, recorded unless it is the same in each program."""
        operands = [handle for one in arguments for handle in handles(one)]
        if not name.startswith(ORDERED) and not any(self.varies(one) for one in operands):
            return inner(*arguments, **options)
        if self.left:
            self.left -= 1
            before, ins = next(self.past, None), self._others(operands)
            if before is None or (before.name, before.ins) != (name, ins):
                self.lost = True
                return inner(*arguments, **options)
            return again(before.like, iter([self.values[out] for out in before.outs]))
        copies = tuple(copied(one) for one in arguments)
        made = inner(*copies, **options)
        results = handles(made)
        ins, others = tuple(self.place(one.data, same=True) for one in operands), self._others(operands)
        known = len(self.trace.start)
        outs = tuple(self.place(one.data, same=False) for one in results)
        if results and max(outs) < known:
            return made  # what it was given
        run = quick(name, inner, arguments, options, ins, outs, [one.data for one in operands], results)
        self.stretch.operations.append(Operation(name, others, outs, made))
        self.stretch.runs.append(run)
        return made

    def look(self, handle: Any, look: Callable[[Any], int]) -> int:
        """A number that a kernel goes by."""
        if self.lost or not self.varies(handle):
            return look(handle.data)
        if self.left:
            self.left -= 1
            place, value = next(self.seen, (-1, 0))
            if place != self.places[id(handle.data)]:
                self.lost = True
                return look(handle.data)
            return value
        found = look(handle.data)
        self.stretch.place, self.stretch.look = self.place(handle.data, same=True), look
        self.stretch = self.stretch.after.setdefault(found, Stretch())
        return found


def copied(one: Any) -> Any:
    """An argument whose handle an operation may change."""
    return TensorHandle(one.data, one.dtype, one.attr) if one.__class__ is TensorHandle else one


def as_index(data: np.ndarray) -> int:
    return int(data.squeeze())


def as_bool(data: np.ndarray) -> bool:
    return bool(data) if data.size == 1 else True


def operations() -> dict[Any, dict[str, Any]]:
    """What a program is recorded by: the methods of the interpreter, by class."""
    builder = {name: one for name, one in vars(InterpreterBuilder).items() if name.startswith("create_")}
    return {InterpreterBuilder: builder, ReduceScanOpInterface: {"apply": ReduceScanOpInterface.apply}}


@contextmanager
def recorded(recorder: Recorder) -> Iterator[None]:
    """Record what the interpreter does meanwhile."""
    exchanged = len(EXCHANGED)
    kept = [(owner, name, one) for owner, names in operations().items() for name, one in names.items()]
    kept += [(core.tensor, name, vars(core.tensor)[name]) for name in ("__index__", "__bool__")]

    def outermost(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if recorder.inside or recorder.lost or name == "create_barrier":
                return inner(*arguments, **options)
            recorder.inside = True
            try:
                return recorder.operate(name, inner, arguments, options)
            finally:
                recorder.inside = False

        return operation

    def looked(look: Callable[[Any], int]) -> Callable[[Any], int]:
        return lambda self: look(self.handle.data) if recorder.inside else recorder.look(self.handle, look)

    try:
        for owner, name, one in kept[:-2]:
            setattr(owner, name, outermost(name, one))
        core.tensor.__index__ = looked(as_index)  # type: ignore[assignment]
        core.tensor.__bool__ = looked(as_bool)  # type: ignore[assignment]
        yield
        # Which has put its own functions in place of these.
        recorder.lost = recorder.lost or len(EXCHANGED) > exchanged
    finally:
        for owner, name, one in kept:
            setattr(owner, name, one)


TRACES = dict[Any, Trace | None]()
"""By kernel and arguments; None where the first program has gone, or no trace is wanted."""
EXCHANGED = list[Any]()
"""Kernels and helpers that Triton has put its interpreter into."""


def watched() -> tuple[Any, ...]:
    """What tests put other functions in place of, which a trace would not call."""
    classes = (InterpreterBuilder, interpreter.ReduceOps, interpreter.ScanOps, ReduceScanOpInterface)
    return (*(dict(vars(one)) for one in classes), interpreter._interpreter, interpreter.TensorHandle)


@functools.cache
def untouched() -> tuple[Any, ...]:
    """What it was before any test."""
    return watched()


def forget() -> None:
    """Kernels are no longer what they were."""
    TRACES.clear()


def key_of(fn: Any, values: dict[str, Any]) -> Any:
    """What two programs share that go alike; None where that is not told."""
    found: list[Any] = [fn]
    for name, one in values.items():
        if one.__class__ is core.tensor:
            found.append((name, one.type.name, one.handle.data.dtype))
        elif one.__class__ is core.constexpr:
            found.append((name, one.value.__class__, one.value))
        elif one.__class__ is tuple:
            return None
        else:
            found.append((name, one.__class__, one))
    key = tuple(found)
    try:
        hash(key)
    except TypeError:
        return None
    return key


class Programs:
    """The programs of one launch."""

    def __init__(self, fn: Callable[..., None], values: dict[str, Any]) -> None:
        self.fn, self.values = fn, values
        self.key = key_of(fn, values) if watched() == untouched() else None

    @functools.cached_property
    def inputs(self) -> Values:
        return [one.handle.data for one in self.values.values() if one.__class__ is core.tensor]

    def run(self) -> None:
        """The program that the builder's place in the grid says."""
        if self.key is None:
            self.fn(**self.values)
        elif self.key not in TRACES:
            TRACES[self.key] = None
            self.fn(**self.values)
        elif (trace := TRACES[self.key]) is None:
            TRACES[self.key] = trace = Trace([None] * len(self.inputs))
            self._record(trace, list(self.inputs), [])
        else:
            self._replay(trace)

    def _replay(self, trace: Trace) -> None:
        values, stretch, path = trace.start.copy(), trace.first, list[tuple[Stretch, int]]()
        values[: len(self.inputs)] = self.inputs
        while True:
            for run in stretch.runs:
                run(values)
            if stretch.place < 0:
                return
            found = stretch.look(values[stretch.place])
            path.append((stretch, found))
            if found not in stretch.after:
                self._record(trace, values, path)
                return
            stretch = stretch.after[found]

    def _record(self, trace: Trace, values: Values, path: list[tuple[Stretch, int]]) -> None:
        recorder = Recorder(trace, values, path)
        kept = False
        try:
            with recorded(recorder):
                self.fn(**self.values)
            kept = not recorder.lost
        finally:
            if not kept:
                TRACES.pop(self.key, None)
