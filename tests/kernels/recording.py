"""The record of how programs of an interpreted kernel go: operations, and what they look at between them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from triton.language import core
from triton.runtime.interpreter import InterpreterBuilder, ReduceScanOpInterface, TensorHandle

from tests.kernels.replays import Run, again, handles, quick

Values = list[Any]
"""An array for each place of a trace."""
ORDERED = ("create_load", "create_masked_", "create_store", "create_atomic", "create_get_program", "create_get_num")
"""Operations that are never left out, however well known their operands are."""
PLACES = 60_000
"""Values of a kernel, in all its ways, that are kept track of; a record of more is begun anew."""
NOTHING = np.empty(0, np.int8)
EXCHANGED = list[Any]()
"""Kernels and helpers that Triton has put its interpreter into."""


@dataclass(frozen=True)
class Operation:
    """One of a program.

    `ins` are the places of its operands that are others in each program, `outs` those of what it makes, as `like` is
    but for its numbers.
    """

    name: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    like: Any


@dataclass
class Stretch:
    """Operations up to the next number that a kernel looks at, at `place`, and what follows each.

    Its values come after those on the way to it, and `start` has those that are the same in each program, and None.
    """

    start: Values = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    place: int = -1
    look: Callable[[Any], int] = int
    after: dict[int, "Stretch"] = field(default_factory=dict)


Path = list[tuple[Stretch, int]]
"""Stretches that programs have come through, and what each of them looked at then."""


def starts_of(path: Path) -> Values:
    """What the values of stretches on the way start with."""
    return [one for stretch, _ in path for one in stretch.start]


@dataclass
class Trace:
    """How programs of one kernel go; `places` counts the values of all stretches."""

    first: Stretch = field(default_factory=Stretch)
    places: int = 0


class Recorder:
    """Records one program of a trace from the end of `path` on; up to there its values are those in `values`.

    It is `lost` where the program goes another way before: the language does some things once, and remembers them.
    """

    def __init__(self, trace: Trace, values: Values, path: Path) -> None:
        self.trace, self.values, self.inside, self.lost = trace, values, False, False
        self.places = {id(one): place for place, one in enumerate(values) if one is not None}
        self.past: Iterator[Operation] = iter([one for stretch, _ in path for one in stretch.operations])
        self.seen = iter([(stretch.place, value) for stretch, value in path])
        self.left = sum(len(stretch.operations) for stretch, _ in path) + len(path)
        self.stretch = path[-1][0].after.setdefault(path[-1][1], Stretch()) if path else trace.first
        starts = starts_of(path)
        self.starts: Values = [None] * (len(values) - len(starts)) + starts

    def place(self, value: Any, same: bool) -> int:
        """Where a value is; a new one for it, which starts with it if it is the `same` in each program."""
        found = self.places.get(id(value))
        if found is None:
            found = self.places[id(value)] = len(self.values)
            self.trace.places += 1
            self.lost = self.lost or self.trace.places > PLACES
            for starts in (self.starts, self.stretch.start):
                starts.append(value if same else None)
            self.values.append(value)
        return found

    def varies(self, handle: Any) -> bool:
        """Whether a value is another one in each program, as far as that is known."""
        place = self.places.get(id(handle.data))
        return place is not None and self.starts[place] is None

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
        varied, known = [self.varies(one) for one in operands], len(self.values)
        outs = tuple(self.place(one.data, same=False) for one in results)
        if results and max(outs) < known:
            return made  # what it was given
        data = [one.data for one in operands]
        run = quick(name, inner, arguments, options, ins, outs, varied, data, results)
        self.stretch.operations.append(Operation(name, others, outs, again(made, repeat(NOTHING))))
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
