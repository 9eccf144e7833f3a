"""Addresses of launches at shapes that no memory is there for: some programs of each run in the interpreter.

A pointer has the number of its argument in its upper bits and its place in that in the lower ones. What is read is the
largest that may stand there (`worst.py`), so that places are the farthest that there are.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import index
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from specchat.engine.kernels import unpack
from tests.gpu_net.runtime import Launch, flat

SHIFT = np.uint64(46)
MIDDLE = 1 << 45
"""The place of an argument's first byte, so that places before it are told from those of another argument."""
PLACES = np.uint64((1 << 46) - 1)
SOURCES = ("/engine/kernels/", "/gpu_net/test_")
"""Parts of the paths of files with kernels."""
AHEAD = "ahead"
"""The argument of kernels with programs after those of rows."""
ROWS = "rows"
"""The argument by which kernels leave out rows."""
LONG, ENDS = 8, 2
"""Passes of a loop of which only the first and last are gone through, and how many of each."""
Value = Callable[[Launch, str], float]
"""(launch, name of an argument) -> what its elements are."""
Program = tuple[int, int, int]


@dataclass
class Addresses:
    """What is found at the launches of one look, each fault once for a kernel and argument."""

    value: Value
    faults: set[str] = field(default_factory=set)
    looked_at: int = 0
    _launch: Launch | None = None
    _names: list[str] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)

    def run(self, launch: Launch) -> None:
        """Run some programs of a launch."""
        executor = launch.executor
        self._launch, self._names, self._sizes = launch, [], []
        arguments = {name: self._argument(executor, name, value) for name, value in launch.arguments.items()}
        with ExitStack() as stack:
            stack.callback(interpreter._patch_lang(executor.fn).restore)
            interpreter.interpreter_builder.set_grid_dim(*launch.grid)
            stack.enter_context(patch.dict(executor.fn.__globals__, {"range": self.passes}))
            for program in self.programs(launch):
                interpreter.interpreter_builder.set_grid_idx(*program)
                self.begin(program)
                executor.fn(**arguments)
                self.looked_at += 1

    def programs(self, launch: Launch) -> list[Program]:
        """Those that run: the first and the last, and that of the last row before those that ask for weights."""
        chosen = {(0, 0, 0), last(launch.grid)}
        if launch.arguments.get(AHEAD) is not None:
            chosen.add((int(launch.arguments[ROWS]) - 1, *last(launch.grid)[1:]))
        return sorted(chosen)

    def passes(self, *bounds: Any) -> Iterator[int]:
        """A kernel's `range` without the middle of long ones: places go on evenly there."""
        every = range(*map(index, bounds))
        yield from every if len(every) <= LONG else (*every[:ENDS], *every[-ENDS:])

    def begin(self, program: Program) -> None:
        """A program begins."""

    def read(self, name: str, places: NDArray[np.int64]) -> float | NDArray[np.int64]:
        """What is read of an argument, at elements of these numbers."""
        del places
        assert self._launch is not None
        return self.value(self._launch, name)

    def _argument(self, executor: Any, name: str, value: Any) -> Any:
        if name in executor.constexprs:
            return value
        if hasattr(value, "_asdict"):
            return type(value)(*(self._argument(executor, *field) for field in value._asdict().items()))
        if not isinstance(value, Tensor):
            return interpreter._implicit_cvt(value)
        last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        self._names.append(name)
        self._sizes.append((last + 1) * value.element_size())
        made = interpreter._implicit_cvt(torch.empty(1, dtype=value.dtype))
        made.handle.data = np.array([(len(self._names) << int(SHIFT)) + MIDDLE], np.uint64)
        return made

    def note(self, words: str) -> None:
        frames = [f for f in traceback.extract_stack() if any(part in f.filename for part in SOURCES)]
        at = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
        assert self._launch is not None
        self.faults.add(f"{self._launch.name}: {words}{at}")

    def looked(self, pointers: NDArray[np.uint64], mask: Any, size: int, writes: bool = False) -> str:
        """Look at an access of `size` bytes at each pointer; the name of the argument that they go to."""
        del writes
        chosen = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)]
        numbers = (chosen >> SHIFT).astype(np.int64) - 1
        places = (chosen & PLACES).astype(np.int64) - MIDDLE
        name = ""
        for number in np.unique(numbers):
            if not 0 <= number < len(self._names):
                self.note("a pointer to nothing that it was given")
                continue
            name, mine = self._names[number], places[numbers == number]
            if mine.min() < 0 or mine.max() + size > self._sizes[number]:
                self.note(f"out of the bounds of {name}, at byte {mine.min()} to {mine.max()} of {self._sizes[number]}")
            if (mine % size).any():
                self.note(f"not aligned in {name}")
        return name

    def load(self, pointers: Any, mask: Any, other: Any, *_: object) -> Any:
        kind = pointers.get_element_ty()
        dtype = np.dtype(interpreter._get_np_dtype(kind))
        name = self.looked(pointers.data, mask.data, dtype.itemsize)
        places = ((pointers.data & PLACES).astype(np.int64) - MIDDLE) // dtype.itemsize
        found: Any = self.read(name, places) if name else 0
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            found = (
                np.clip(found, limits.min, limits.max)
                if isinstance(found, np.ndarray)
                else min(max(int(found), limits.min), limits.max)
            )
        data = np.full(pointers.data.shape, found, dtype)
        if other is not None:
            data = np.where(np.broadcast_to(mask.data, data.shape).astype(bool), data, other.data.astype(dtype))
        return TensorHandle(data, kind)

    def store(self, pointers: Any, value: Any, mask: Any, *_: object) -> None:
        self.looked(pointers.data, mask.data, value.data.dtype.itemsize, writes=True)

    def name_of(self, pointer: np.uint64) -> str:
        """The argument that a pointer belongs to."""
        return self._names[int(pointer >> SHIFT) - 1]


def last(grid: Program) -> Program:
    """The last program of a grid."""
    across, down, deep = grid
    return across - 1, down - 1, deep - 1


def checked_int32(found: Addresses, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Integer arithmetic of the interpreter's that says where 32 bits do not hold what comes out."""

    def computed(_: object, left: Any, right: Any) -> Any:
        with np.errstate(over="ignore"):
            made = operation(left.data, right.data)
        if made.dtype == np.int32:
            wide = operation(left.data.astype(np.int64), right.data.astype(np.int64))
            if (wide != made).any():
                found.note(f"int32 wraps at {wide.flat[np.abs(wide).argmax()]}")
        return TensorHandle(made, left.dtype.scalar)

    return computed


def zeros(words: Any, scale: Any, zero: Any, table: Any, kind: Any) -> Any:
    """Weights of 4 bits without their values, on which no address depends and which take most of the time."""
    del scale, zero, table
    return tl.zeros((*words.shape, 8), kind)


@contextmanager
def looking(found: Addresses) -> Iterator[None]:
    """Let the interpreter look at addresses instead of memory."""
    methods = {
        "create_masked_load": lambda _, *args: found.load(*args),
        "create_masked_store": lambda _, *args: found.store(*args),
        "create_dot": lambda _, __, ___, total, *____: TensorHandle(np.zeros_like(total.data), total.dtype.scalar),
        "create_mul": checked_int32(found, np.multiply),
        "create_add": checked_int32(found, np.add),
        "create_sub": checked_int32(found, np.subtract),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.object(unpack, "_by_bytes", zeros))
        for name, method in methods.items():
            stack.enter_context(patch.object(InterpreterBuilder, name, method))
        yield


def distinct(launches: Iterable[Launch]) -> list[Launch]:
    """Launches that differ in what addresses come from; of those that differ in their rows alone, that of the most."""

    def key(value: object) -> object:
        return (tuple(value.shape), value.stride(), value.dtype) if isinstance(value, Tensor) else value

    found: dict[str, Launch] = {}
    for one in sorted(launches, key=lambda launch: int(launch.arguments.get(ROWS, 0))):
        found[repr((one.name, one.grid, [(k, key(v)) for k, v in flat(one.arguments) if k != ROWS]))] = one
    return list(found.values())


def look(launches: Iterable[Launch], value: Value, kind: type[Addresses] = Addresses) -> Addresses:
    """Look at the addresses of all launches that differ."""
    found = kind(value)
    with looking(found), np.errstate(all="ignore"):
        for launch in distinct(launches):
            found.run(launch)
    return found
