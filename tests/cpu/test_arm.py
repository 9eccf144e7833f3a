"""The products compiled for ARM processors, on which no test runs: they multiply vectors and call no library."""

import re
from typing import Any

import pytest

pytest.importorskip("numba")

from specchat.engine.cpu.primitives import simd
from specchat.engine.cpu.products import tiles
from specchat.engine.cpu.products.block_form import FOUR_BIT
from specchat.engine.cpu.products.columns import NARROW
from specchat.engine.cpu.products.tiles import BFLOAT16, FLOAT16, INT8
from specchat.engine.memory.vectors import LANES
from tests.cpu.test_dots_compiled import ARM, assembled

VECTORS_OF_A_PANEL = 4
"""Of 128 bits, for 16 float32."""


def assembly(form: int, rows: int, panels: int, processor: str) -> str:
    """The code of one tile."""
    name, constants, arguments = ("block_tile", (), 7) if form == FOUR_BIT else ("tile", (LANES,), 8)
    emit: Any = getattr(tiles, name)._defn.__wrapped__
    return assembled(
        lambda builder, *given: emit(builder, form, rows, panels, *constants, *given), arguments, ARM, processor
    )


@pytest.fixture(scope="module")
def codes() -> list[tuple[str, int, str]]:
    """What was compiled, panels of sums in a tile, and the assembly, where no table lies in registers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simd, "features", lambda: "")
        return [
            (f"{form} {rows}x{panels} {processor}", rows * panels, assembly(form, rows, panels, processor))
            for form in (FLOAT16, BFLOAT16, INT8, FOUR_BIT)
            for rows, panels in NARROW.items()
            for processor in ("apple-m1", "neoverse-n1")
        ]


def test_sums_are_of_vectors(codes: list[tuple[str, int, str]]) -> None:
    for name, panels, code in codes:
        assert len(re.findall(r"\bfmla\s+v\d+\.4s", code)) >= VECTORS_OF_A_PANEL * panels, name
        assert not re.findall(r"\bfmadd\b", code), name


def test_no_library_is_called(codes: list[tuple[str, int, str]]) -> None:
    """Numbers are widened by the processor; numba's own calls are for errors."""
    for name, _, code in codes:
        called = set(re.findall(r"\bbl\s+(\w+)", code)) - set(re.findall(r"^(\w+):", code, re.MULTILINE))
        assert not [one for one in called if not one.startswith(("numba_", "NRT_", "Py"))], name


def test_sums_stay_in_registers(codes: list[tuple[str, int, str]]) -> None:
    """Of whole numbers and halves; 4 bits are looked up one at a time there, which needs more places."""
    for name, panels, code in (one for one in codes if not one[0].startswith(f"{FOUR_BIT} ")):
        assert len(re.findall(r"\b(?:str|stp)\s+q\d+[^\n]*\[sp", code)) <= panels, name
