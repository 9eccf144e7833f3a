"""The sanitiser finds each kind of fault in a kernel that has it, and nothing in the same kernel without."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.gpu_net.sanitiser import Findings, sanitised

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")

SIZE = 128
"""Elements of a block, one for each thread of four warps."""


@triton.jit
def _out_of_bounds(x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    tl.store(out + place, tl.load(x + place, mask=place < 100 + FAULT, other=0.0))


@triton.jit
def _out_of_bounds_unmasked(x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 64)
    tl.store(out + place, tl.load(x + 36 + FAULT + place))


@triton.jit
def _before_the_start(x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    tl.store(out + place - FAULT, tl.load(x + place, mask=place < 100, other=0.0))


@triton.jit
def _wrapping(x, out, FAULT: tl.constexpr):
    # A row that a larger tensor would have: 2**16 rows of 2**16 elements are too many for 32 bits.
    row = tl.program_id(0) + FAULT * 65537
    tl.store(out, tl.load(x + row * 65536))


@triton.jit
def _wild(x, out, FAULT: tl.constexpr):
    far = tl.full((), FAULT, tl.int64) << 50
    tl.store(out, tl.load(x + far))


@triton.jit
def _misaligned(x, out, FAULT: tl.constexpr):
    pair = (x.to(tl.pointer_type(tl.uint8)) + FAULT).to(tl.pointer_type(tl.uint16))
    tl.store(out, tl.load(pair).to(tl.float32))


@triton.jit
def _two_write(_x, out, FAULT: tl.constexpr):
    program = tl.program_id(0)
    tl.store(out + program * (1 - FAULT), program.to(tl.float32))


@triton.jit
def _one_reads(_x, out, FAULT: tl.constexpr):
    program = tl.program_id(0)
    tl.store(out + program, 1.0)
    tl.debug_barrier()
    tl.store(out + 8 + program, tl.load(out + (program + FAULT) % 4))


@triton.jit
def _overlapping(_x, out, FAULT: tl.constexpr):
    """Accesses of different widths that share bytes."""
    program = tl.program_id(0)
    tl.store(out.to(tl.pointer_type(tl.int64)) + program, program.to(tl.int64))
    tl.store(out + 2 * (program + 4) - 5 * FAULT, 1.0)


@triton.jit
def _read_after_write(x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    tl.store(out + place, tl.load(x + tl.minimum(place, 99)))
    if not FAULT:
        tl.debug_barrier()
    turned = tl.load(out + 127 - place)
    tl.debug_barrier()
    tl.store(out + place, turned)


@triton.jit
def _write_after_read(_x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    turned = tl.load(out + 127 - place)
    if not FAULT:
        tl.debug_barrier()
    tl.store(out + place, turned)


@triton.jit
def _write_after_write(_x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    tl.store(out + place, 1.0)
    if not FAULT:
        tl.debug_barrier()
    tl.store(out + 127 - place, place.to(tl.float32))


@triton.jit
def _number_after_write(_x, out, FAULT: tl.constexpr):
    """One thread writes a number that all threads read."""
    tl.store(out, 1.0)
    if not FAULT:
        tl.debug_barrier()
    tl.store(out + 1 + tl.arange(0, 32), tl.load(out) + tl.zeros((32,), tl.float32))


@triton.jit
def _disagreeing(_x, out, FAULT: tl.constexpr):
    place = tl.arange(0, 128)
    tl.store(out + place // (1 + FAULT), place.to(tl.float32))


@triton.jit
def _own_lanes(_x, out, _FAULT: tl.constexpr):
    """Each thread reads and writes its own elements over and over."""
    place = tl.arange(0, 128)
    for _ in range(3):
        tl.store(out + place, tl.load(out + place) + 1.0)


PLANTED: dict[str, tuple[Any, int]] = {
    "out of bounds": (_out_of_bounds, 1),
    "out of bounds, without a mask": (_out_of_bounds_unmasked, 1),
    "out of bounds, before the start": (_before_the_start, 1),
    "out of bounds, by 32 bits": (_wrapping, 1),
    "wild pointer": (_wild, 1),
    "misaligned": (_misaligned, 1),
    "two programs write one address": (_two_write, 4),
    "two programs write one address, in part": (_overlapping, 4),
    "a program reads what another writes": (_one_reads, 4),
    "read after write without a barrier": (_read_after_write, 1),
    "read after write without a barrier, of one number": (_number_after_write, 1),
    "write after read without a barrier": (_write_after_read, 1),
    "write after write without a barrier": (_write_after_write, 1),
    "lanes store different values at one address": (_disagreeing, 1),
}
"""Kernels with a fault of each kind, and how many programs it takes."""


def run(kernel: Any, programs: int, fault: bool, warps: int = 4) -> Findings:
    x, out = torch.ones(100), torch.zeros(SIZE)
    with sanitised() as found:
        kernel[(programs,)](x, out, int(fault), num_warps=warps)
    assert (found.launches.total(), found.programs) == (1, programs)
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_and_none_where_none_is(name: str) -> None:
    kernel, programs = PLANTED[name]
    found = run(kernel, programs, True)
    assert found.kinds == {name.partition(",")[0]}
    assert all(fault.kernel == kernel.__name__ for fault in found.faults)
    assert run(kernel, programs, False).kinds == set()


def test_a_fault_names_its_line_and_its_tensor() -> None:
    (fault,) = run(_out_of_bounds, 1, True).faults
    lines = range(_out_of_bounds.fn.__code__.co_firstlineno, _out_of_bounds_unmasked.fn.__code__.co_firstlineno)
    file, _, number = fault.place.partition(":")
    assert file == "test_sanitiser.py"
    assert int(number) in lines
    assert fault.detail == "x at 400..400 of 400 bytes"


def test_threads_own_what_they_wrote_and_those_of_one_warp_read_together() -> None:
    assert run(_own_lanes, 1, False).kinds == set()
    assert run(_read_after_write, 1, True, warps=1).kinds == {"read after write without a barrier"}
    assert run(_write_after_write, 1, True, warps=1).kinds == {"write after write without a barrier"}
    assert run(_write_after_read, 1, True, warps=1).kinds == set()
    # Of 128 elements 256 threads would each hold the half of one twice.
    assert run(_own_lanes, 1, False, warps=8).kinds == {
        "read after write without a barrier",
        "write after read without a barrier",
    }


@triton.jit
def _masked(x, out, OTHER: tl.constexpr):
    place = tl.arange(0, 128)
    value = tl.load(x + place, mask=place < 100, other=0) if OTHER else tl.load(x + place, mask=place < 100)
    tl.store(out, tl.sum(value.to(tl.float32), 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8])
def test_what_is_masked_without_other_is_garbage(dtype: torch.dtype) -> None:
    out = torch.zeros(1)
    with sanitised() as found:
        _masked[(1,)](torch.ones(100, dtype=dtype), out, OTHER=True)
        assert float(out) == 100
        _masked[(1,)](torch.ones(100, dtype=dtype), out, OTHER=False)
        assert float(out) != 100
    assert not found.faults


@triton.jit
def _count(out):
    turn = tl.load(out + 64)
    tl.store(out + tl.program_id(0), turn)
    tl.store(out + 64, turn + 1)


def test_programs_come_in_an_order_that_the_seed_repeats() -> None:
    def order(seed: int) -> list[float]:
        out = torch.zeros(SIZE)
        with sanitised(seed):
            _count[(16,)](out)
        return out[:16].tolist()

    assert sorted(order(1)) == list(range(16))
    assert order(1) == order(1) != order(2)


def test_the_interpreter_is_as_it_was_after_it() -> None:
    x = torch.zeros(SIZE)
    with pytest.raises(ZeroDivisionError), sanitised():
        raise ZeroDivisionError
    two_write: Callable[..., Any] = _two_write[(4,)]
    two_write(x, x, FAULT=1)
    assert float(x[0]) == 3


def test_what_an_access_leaves_is_what_it_would_leave_without() -> None:
    """Also where the tensors of a launch are parts of others, with gaps."""
    base = torch.arange(256.0)

    def turned() -> Tensor:
        out = base.clone()
        _out_of_bounds[(1,)](base, out[::2], FAULT=0)
        _out_of_bounds[(1,)](base[128:], out[1:129], FAULT=0)
        return out

    expected = turned()
    with sanitised() as found:
        assert torch.equal(turned(), expected)
    assert not found.faults
