"""Counting what a loop in PTX asks of shared memory: conflicts that are known, and chains that differ."""

import pytest

from tests.kernels.ptx import loop

KERNEL = """
	mov.u32 	%r1, %tid.x;
	{address}
$L__BB0_1:
	{access}
	bar.sync 	0;
	@%p1 bra 	$L__BB0_1;
"""


HALVES = """shl.b32 	%r4, %r1, 3;
	mov.b64 	%rd3, {{%r0, %r4}};
	mov.b64 	{}, %rd3;
	mov.b32 	%r2, %r3;"""
"""An address that is half of a number of 64 bits: all threads have the first, the second is theirs."""


@pytest.mark.parametrize(
    ("address", "access", "cycles"),
    [
        ("shl.b32 \t%r2, %r1, 2;", "ld.shared.b32 \t%r9, [%r2];", 1),
        ("shl.b32 \t%r2, %r1, 3;", "ld.shared.b32 \t%r9, [%r2+64];", 2),
        ("shl.b32 \t%r2, %r1, 7;", "ld.shared.b32 \t%r9, [%r2];", 32),
        ("and.b32 \t%r2, %r1, 64;", "ld.shared.b32 \t%r9, [%r2];", 1),
        (HALVES.format("{%r3, _}"), "ld.shared.b32 \t%r9, [%r2];", 1),
        (HALVES.format("{_, %r3}"), "ld.shared.b32 \t%r9, [%r2];", 2),
        ("shl.b32 \t%r2, %r1, 4;", "st.shared.v4.b32 \t[ %r2 + 0 ], { %r5, %r6, %r7, %r8 };", 4),
        ("shl.b32 \t%r2, %r1, 5;", "st.shared.v4.b32 \t[ %r2 + 0 ], { %r5, %r6, %r7, %r8 };", 8),
        ("shl.b32 \t%r2, %r1, 4;", "cp.async.cg.shared.global [ %r2 + 0 ], [ %rd1 + 0 ], 0x10, %r5;", 4),
        ("shl.b32 \t%r2, %r1, 4;", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r2];", 4),
        ("shl.b32 \t%r2, %r1, 7;", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r2];", 32),
        ("shl.b32 \t%r2, %r1, 7;", "ld.global.b32 \t%r9, [%rd2];", 0),
    ],
)
def test_a_bank_gives_one_word_at_a_time(address: str, access: str, cycles: int) -> None:
    found = loop(KERNEL.format(address=address, access=access), 32)
    assert (found.wavefronts(), found.barriers()) == (cycles, 1)
    assert loop(KERNEL.format(address=address, access=access), 128).wavefronts() == 4 * cycles


LOADS = "ld.shared.v2.b32 \t{%r3, %r4}, [%r2+256];\n\tld.shared.v2.b32 \t{%r5, %r6}, [%r2+512];\n\t"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %r9 }, { %r3 }, { %r5 }, { %r9 };\n\t"


def test_chains_tell_the_order_of_their_products() -> None:
    second = MMA.replace("%r3", "%r7").replace("%r5", "%r6")
    made = LOADS + "cvt.u32.u32 \t%r7, %r4;\n\t"
    forwards, backwards = (
        loop(KERNEL.format(address="shl.b32 \t%r2, %r1, 3;", access=made + order), 32).chains()
        for order in (MMA + second, second + MMA)
    )
    assert forwards == ["[[256]] [[512]] | [[260]] [[516]]"]
    assert backwards == ["[[260]] [[516]] | [[256]] [[512]]"]


@pytest.mark.parametrize(
    ("address", "lines"),
    [
        ("shl.b32 \t%r2, %r1, 4;", 4),
        ("shl.b32 \t%r2, %r1, 7;", 32),
        ("shr.u32 \t%r3, %r1, 4;\n\tld.param.b32 \t%r4, [kernel_param_0];\n\tmul.lo.s32 \t%r2, %r3, %r4;", 2),
    ],
    ids=["a row of 512 bytes", "a line each", "two rows"],
)
def test_a_copy_asks_for_the_lines_that_its_threads_read(address: str, lines: int) -> None:
    access = "cp.async.cg.shared.global [ %r9 + 0 ], [ %r2 + 0 ], 0x10, %r5;"
    found = loop(KERNEL.format(address=address, access=access), 64)
    assert found.lines_ahead() == 2 * lines
