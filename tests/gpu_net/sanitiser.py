"""A sanitiser for interpreted kernels: what a GPU would do with them otherwise, or with nothing said.

Triton's interpreter runs programs one after the other, reads and writes any memory, and gives zeros for lanes that are
masked without `other`. Under `sanitised` programs come in random order, every access is checked, and such lanes get
garbage.
"""

import inspect
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import triton
from torch import Tensor
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle

from tests.gpu_net.hazards import Access, Hazards
from tests.gpu_net.pointers import Extents
from tests.gpu_net.runtime import flat
from tests.kernels import accesses, shapes_once

WARPS = 4
"""Warps of a launch that asks for none."""
NO_KERNELS = (Path(triton.__file__).parent, Path(accesses.__file__), Path(shapes_once.__file__), Path(__file__))
"""Where calls from a kernel's line to the sanitiser go through."""


@dataclass(frozen=True)
class Fault:
    """A fault of a kind in a kernel, and the line of source that has it, if one has."""

    kind: str
    kernel: str
    place: str
    detail: str


@dataclass
class Findings:
    """What was seen: each fault with how often, and launches by kernel."""

    faults: Counter[Fault] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)
    programs: int = 0

    @property
    def kinds(self) -> set[str]:
        return {fault.kind for fault in self.faults}


class Launch:
    """One kernel as it runs."""

    def __init__(self, kernel: str, warps: int, names: dict[int, str], findings: Findings) -> None:
        """`names` tell the tensors by their addresses."""
        self.extents, self._hazards = Extents(), Hazards(warps)
        self._kernel, self._names, self._findings = kernel, names, findings
        self._order: list[tuple[int, int, int]] = []
        self._started = 0
        findings.launches[kernel] += 1

    def tag(self, tensor: Any) -> np.ndarray:
        return self.extents.tag(self._names[tensor.data_ptr()], tensor)

    def shuffle(self, grid: tuple[int, int, int], rng: random.Random) -> None:
        across, down, deep = grid
        self._order = list(product(range(across), range(down), range(deep)))
        rng.shuffle(self._order)

    def next_program(self) -> tuple[int, int, int]:
        self._hazards.barrier()
        self._started += 1
        return self._order[self._started - 1]

    def barrier(self) -> None:
        self._hazards.barrier()

    def load(self, pointers: np.ndarray, mask: np.ndarray, other: np.ndarray | None, kind: np.dtype) -> np.ndarray:
        lanes, mask = np.ascontiguousarray(pointers), spread(mask, pointers.shape)
        at = self.extents.resolve(lanes, mask, kind.itemsize)
        masked = garbage(lanes.shape, kind) if other is None else np.broadcast_to(other, lanes.shape).astype(kind)
        access = Access(self._started, lanes, at.addresses[at.inside], kind.itemsize)
        self._tell(at.faults, self._hazards.read(access))
        loaded: np.ndarray = interpreter._interpreter.load(at.addresses, at.inside, np.ascontiguousarray(masked), kind)
        return loaded

    def store(self, pointers: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        lanes, mask = np.ascontiguousarray(pointers), spread(mask, pointers.shape)
        values = np.ascontiguousarray(np.broadcast_to(value, lanes.shape))
        at = self.extents.resolve(lanes, mask, values.itemsize)
        access = Access(self._started, lanes, at.addresses[at.inside], values.itemsize)
        self._tell(at.faults, self._hazards.write(access, values[at.inside]))
        interpreter._interpreter.store(at.addresses, values, at.inside)

    def finish(self) -> None:
        self._findings.programs += self._started
        if self._started > 1:
            for kind, address in self._hazards.between_programs():
                self._findings.faults[Fault(kind, self._kernel, "", self.extents.names(address))] += 1

    def _tell(self, faults: list[tuple[str, str]], kinds: Iterator[str]) -> None:
        for kind, detail in (*faults, *((kind, "") for kind in kinds)):
            self._findings.faults[Fault(kind, self._kernel, line(sys._getframe()), detail)] += 1


def spread(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A bool of each lane."""
    return mask if mask.shape == shape and mask.dtype == np.bool_ else np.broadcast_to(mask, shape).astype(bool)


def garbage(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """What a register may hold: NaN, of bfloat16 in uint16 too, or a number that is no token, row or address."""
    if kind == np.bool_:
        return np.ones(shape, kind)
    return np.full(shape, np.nan if kind.kind == "f" else np.iinfo(kind).max - 3, kind)


def line(frame: FrameType | None) -> str:
    """The nearest line that is the kernel's own or a helper's."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if not any(path.is_relative_to(other) for other in NO_KERNELS):
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def kind_of(kernel: Any, arguments: dict[str, Any]) -> object:
    """What launches share that differ in numbers in memory alone."""
    return kernel, *((tuple(one.shape), one.dtype) if isinstance(one, Tensor) else one for _, one in flat(arguments))


@contextmanager
def sanitised(seed: int = 0, rarely: bool = False) -> Iterator[Findings]:
    """Check every launch, its programs in an order by `seed`; for processes whose kernels are interpreted.

    Of the launches of one kind only the first, second, fourth, eighth ... are checked if `rarely`.
    """
    findings, rng, kinds = Findings(), random.Random(seed), Counter[object]()
    launches: list[Launch] = []
    call, convert = GridExecutor.__call__, interpreter._implicit_cvt
    asked, otherwise = TritonSemantic.load, list[bool]()
    set_dim, set_idx = InterpreterBuilder.set_grid_dim, InterpreterBuilder.set_grid_idx

    def launch(executor: Any, *arguments: Any, **options: Any) -> None:
        taken = inspect.signature(executor.fn).bind(
            *arguments, **{name: value for name, value in options.items() if name in executor.arg_names}
        )
        kind = kind_of(executor.fn, taken.arguments)
        kinds[kind] += 1
        if rarely and kinds[kind] & (kinds[kind] - 1):
            findings.launches[executor.fn.__name__] += 1
            with pytest.MonkeyPatch.context() as patch:
                for owner, name, one in before:
                    patch.setattr(owner, name, one)
                call(executor, *arguments, **options)
            return
        names = {value.data_ptr(): name for name, value in flat(taken.arguments) if hasattr(value, "data_ptr")}
        launches.append(Launch(executor.fn.__name__, options.get("num_warps", WARPS), names, findings))
        try:
            call(executor, *arguments, **options)
            launches[-1].finish()
        finally:
            launches.pop()

    def implicit_cvt(value: Any) -> Any:
        made = convert(value)
        if hasattr(value, "data_ptr"):
            made.handle.data = launches[-1].tag(value)
        return made

    def set_grid_dim(builder: Any, *grid: int) -> None:
        set_dim(builder, *grid)
        launches[-1].shuffle(grid, rng)  # type: ignore[arg-type]

    def set_grid_idx(builder: Any, *_: int) -> None:
        set_idx(builder, *launches[-1].next_program())

    def ask(semantic: Any, pointers: Any, mask: Any, other: Any, *options: Any) -> Any:
        otherwise.append(other is not None)
        found = asked(semantic, pointers, mask, other, *options)
        otherwise.pop()
        return found

    def load(_: Any, pointers: Any, mask: Any, other: Any, *__: Any) -> Any:
        kind = pointers.get_element_ty()
        # An `other` that is the lone number 0 is taken for none on the way.
        zero = np.zeros(1) if otherwise and otherwise[-1] else None
        instead = zero if other is None else other.data
        found = launches[-1].load(pointers.data, mask.data, instead, np.dtype(interpreter._get_np_dtype(kind)))
        return TensorHandle(found, kind)

    def store(_: Any, pointers: Any, value: Any, mask: Any, *__: Any) -> None:
        launches[-1].store(pointers.data, value.data, mask.data)

    def barrier(_: Any) -> None:
        launches[-1].barrier()

    def unknown(*_: Any) -> Any:
        raise NotImplementedError("the sanitiser knows no atomics")

    changed: list[tuple[Any, str, Any]] = [
        (GridExecutor, "__call__", launch),
        (interpreter, "_implicit_cvt", implicit_cvt),
        (InterpreterBuilder, "set_grid_dim", set_grid_dim),
        (InterpreterBuilder, "set_grid_idx", set_grid_idx),
        (TritonSemantic, "load", ask),
        (InterpreterBuilder, "create_masked_load", load),
        (InterpreterBuilder, "create_masked_store", store),
        (InterpreterBuilder, "create_barrier", barrier),
        (InterpreterBuilder, "create_atomic_rmw", unknown),
        (InterpreterBuilder, "create_atomic_cas", unknown),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, instead in changed:
            patch.setattr(owner, name, instead)
        yield findings
