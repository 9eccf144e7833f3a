"""Programs of interpreted kernels, run again as they went before: operations of numpy, without Triton's language.

The first program with arguments of some types and constants is interpreted, the second one is recorded as well, and
those after it are the recorded operations on their own numbers, each for all programs of a launch at once. Where a
kernel looks at a number (the end of a loop, a branch) the record forks, and programs part. What depends on no argument
is worked out once.

A program may see what another one of its launch writes, or not: as on a GPU.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceScanOpInterface

from tests.kernels.recording import Path, Recorder, Stretch, Trace, Values, as_bool, recorded, starts_of
from tests.kernels.replays import of_program

AT_ONCE = 64
"""Programs that are run at once: the values of more would leave the cache."""
Part = tuple[Values, np.ndarray, Stretch, Path]
"""Programs of a launch that go on alike: their values, places, next stretch and way."""
NUMBERS = dict[Any, int]()
"""Of kernels and arguments, whose long keys are hashed once a launch."""
NEXT = count()
TRACES = dict[int, Trace | None]()
"""By number; None where the first program has gone, or no trace is wanted."""


def watched() -> tuple[Any, ...]:
    """What tests put other functions in place of, which a trace would not call."""
    classes = (InterpreterBuilder, interpreter.ReduceOps, interpreter.ScanOps, ReduceScanOpInterface)
    return (*[vars(one).copy() for one in classes], interpreter._interpreter, interpreter.TensorHandle)


@functools.cache
def untouched() -> tuple[Any, ...]:
    """What it was before any test."""
    return watched()


def forget() -> None:
    """Kernels are no longer what they were."""
    TRACES.clear()
    NUMBERS.clear()


def fields_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An argument by its name, and one of several fields by the name of each."""
    if not isinstance(value, tuple):
        yield name, value
        return
    yield name, value.__class__
    for place, one in enumerate(value):
        yield from fields_of(f"{name}.{place}", one)


def key_of(fn: Any, arguments: list[tuple[str, Any]]) -> Any:
    """What two programs share that go alike; None where that is not told."""
    found: list[Any] = [fn]
    for name, one in arguments:
        if one.__class__ is core.tensor:
            found.append((name, one.type.name, one.handle.data.dtype))
        elif one.__class__ is core.constexpr:
            found.append((name, one.value.__class__, one.value))
        else:
            found.append((name, one.__class__, one))
    key = tuple(found)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def chosen_of(values: Values, starts: Values, chosen: list[int]) -> Values:
    """The values of some programs, which start with their arguments and then with `starts`."""
    inputs = len(values) - len(starts)
    own = zip(values, [*[None] * inputs, *starts], strict=True)
    return [one[chosen] if start is None and len(one) > 1 else one for one, start in own]


def seen_at(stretch: Stretch, data: np.ndarray) -> list[int]:
    """What programs look at after a stretch, or what all of them do."""
    if data.size == len(data) and data.dtype.kind in "biu":
        return [*map(bool, data.ravel().tolist())] if stretch.look is as_bool else data.ravel().tolist()
    return [stretch.look(one) for one in data]


def counted(*bounds: Any) -> Iterable[Any]:
    """Stands for `range` in kernels: how often a loop runs is looked at, and not the number that it starts with."""
    if not Programs.traced or len(bounds) == 1 or bounds[0].__class__ is not core.tensor:
        return range(*bounds)
    first, end, step = (*bounds, 1)[:3]
    return (first + number * step for number in range((end - first + (step - 1)) // step))


class Programs:
    """The programs of one launch; `traced` while those of any are, other than interpreted alone."""

    traced = False

    def __init__(self, fn: Callable[..., None], values: dict[str, Any]) -> None:
        self.fn, self.values = fn, values
        arguments = [field for name, value in values.items() for field in fields_of(name, value)]
        self.tensors = [one for _, one in arguments if one.__class__ is core.tensor]
        key = key_of(fn, arguments) if watched() == untouched() else None
        self.key = None
        if key is not None:
            self.key = NUMBERS.get(key)
            if self.key is None:
                self.key = NUMBERS[key] = next(NEXT)

    @property
    def inputs(self) -> Values:
        """As they are by now: an operation that is interpreted may put another array of the same numbers in place."""
        return [one.handle.data for one in self.tensors]

    def run(self, programs: np.ndarray) -> None:
        """Those at these places of the grid, in their order."""
        done, Programs.traced = 0, self.key is not None
        try:
            while done < len(programs):
                if self.key is not None and TRACES.get(self.key) is not None:
                    self._replay(TRACES[self.key], programs[done : done + AT_ONCE])
                    done += AT_ONCE
                else:
                    self._interpret(programs[done])
                    done += 1
        finally:
            Programs.traced = False

    def _interpret(self, program: np.ndarray) -> None:
        interpreter.interpreter_builder.set_grid_idx(*program.tolist())
        if self.key is not None and self.key in TRACES:
            TRACES[self.key] = trace = Trace()
            self._record(trace, list(self.inputs), [])
            return
        if self.key is not None:
            TRACES[self.key] = None
        self.fn(**self.values)

    def _replay(self, trace: Trace, programs: np.ndarray) -> None:
        waiting: list[Part] = [([one[None] for one in self.inputs], programs, trace.first, [])]
        while waiting:
            values, programs, stretch, path = waiting.pop(0)
            if self.key is None or TRACES.get(self.key) is not trace:
                for program in range(len(programs)):
                    self._go_on(trace, values, program, programs, path)
                continue
            values += stretch.start
            for run in stretch.runs:
                run(values, programs)
            if stretch.place < 0:
                continue
            seen = seen_at(stretch, values[stretch.place])
            if len(set(seen)) == 1 and seen[0] in stretch.after:
                path.append((stretch, seen[0]))
                waiting.append((values, programs, stretch.after[seen[0]], path))
                continue
            parts = dict[int, list[int]]()
            for program, found in enumerate(seen if len(seen) > 1 else seen * len(programs)):
                parts.setdefault(found, []).append(program)
            for found, chosen in parts.items():
                on = [*path, (stretch, found)]
                if found not in stretch.after:
                    self._go_on(trace, values, chosen.pop(0), programs, on)
                if chosen:
                    part = chosen_of(values, starts_of(on), chosen)
                    waiting.append((part, programs[chosen], stretch.after[found], on))

    def _go_on(self, trace: Trace, values: Values, program: int, programs: np.ndarray, path: Path) -> None:
        """Record one of `programs`, all of which are at the end of `path`."""
        interpreter.interpreter_builder.set_grid_idx(*programs[program].tolist())
        inputs = len(self.inputs)
        alone = [
            of_program(one, program) if start is None else one
            for one, start in zip(values[inputs:], starts_of(path), strict=True)
        ]
        self._record(trace, [*self.inputs, *alone], path)

    def _record(self, trace: Trace, values: Values, path: Path) -> None:
        recorder = Recorder(trace, values, path)
        kept = False
        try:
            with recorded(recorder):
                self.fn(**self.values)
            kept = not recorder.lost
        finally:
            if not kept and self.key is not None:
                TRACES.pop(self.key, None)
