"""The products compiled for ARM processors, on which no test runs: they multiply vectors and call no library."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest

from specchat.engine.cpu.products.blocks import FOUR_BIT
from tests.cpu.test_decoder import NO_TABLES

PROGRAM = """
import json, re
from llvmlite import binding
from specchat.engine.cpu.products import columns
from specchat.engine.cpu.products.blocks import FOUR_BIT
from specchat.engine.cpu.products.tiles import BFLOAT16, FLOAT16, INT8

LAYOUT = "e-m:e-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32"
TRIPLE = "aarch64-unknown-linux-gnu"
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
target = binding.Target.from_triple(TRIPLE)
found = []
for form in (FLOAT16, BFLOAT16, INT8, FOUR_BIT):
    for rows, panels in columns.NARROW.items():
        made = columns.compile_tile(form, rows, panels).inspect_llvm()
        made = re.sub('target datalayout = "[^"]*"', f'target datalayout = "{LAYOUT}"', made)
        made = re.sub('target triple = "[^"]*"', f'target triple = "{TRIPLE}"', made)
        made = re.sub('"target-(cpu|features)"="[^"]*"', "", made)
        for processor in ("apple-m1", "neoverse-n1"):
            machine = target.create_target_machine(cpu=processor, opt=3)
            code = machine.emit_assembly(binding.parse_assembly(made))
            found.append((f"{form} {rows}x{panels} {processor}", rows * panels, code))
print(json.dumps(found))
"""
VECTORS_OF_A_PANEL = 4
"""Of 128 bits, for 16 float32."""


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str]]:
    """What was compiled, panels of sums in a tile, and the assembly, where no table lies in registers."""
    pytest.importorskip("numba")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("a processor of another kind cannot be limited to what all have")
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | NO_TABLES | {"NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("numba"))},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[str, int, str]] = json.loads(made.stdout)
    return found


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
