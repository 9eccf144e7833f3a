"""Products of bytes compiled for processors that no test runs on: they use the instruction that multiplies bytes."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from llvmlite import binding, ir

from specchat.engine.cpu.packed import format_of
from specchat.engine.cpu.primitives.simd import I64
from specchat.engine.cpu.products import dots, integers
from specchat.engine.formats.gguf import block_of_zeros
from specchat.engine.formats.layout import EightBit

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
PROCESSORS = [
    ("AVX-512 VNNI", X86, "znver4", r"\bvpdpbusd\b.*%zmm"),
    ("AVX-512 VNNI", X86, "icelake-server", r"\bvpdpbusd\b.*%zmm"),
    ("AVX-VNNI", X86, "alderlake", r"\bvpdpbusd\b.*%ymm"),
    ("AVX2", X86, "haswell", r"\bvpmaddubsw\b.*%ymm"),
    ("ARM dot product", ARM, "apple-m1", r"\bsdot\b"),
    ("ARM dot product", ARM, "neoverse-n1", r"\bsdot\b"),
    ("plain", ARM, "cortex-a72", r"\bmla\b"),
]
FORMS = {
    "int8": format_of(EightBit(torch.zeros(16, 64, dtype=torch.int8), torch.zeros(16)), "int8"),
} | {kind: format_of(block_of_zeros(kind), "int8") for kind in ("Q4_0", "Q4_K", "Q6_K", "IQ4_XS")}
ROWS, PANELS, QUADS = 4, 1, 2
"""The last are of a group of inputs, of which a loop takes one at a time."""
LANES = {"AVX-512 VNNI": 16, "AVX-VNNI": 8, "AVX2": 8, "ARM dot product": 4, "plain": 16}


def assembled(emit: Callable[..., None], arguments: int, triple: str, processor: str) -> str:
    """What `emit` writes with a builder and so many addresses and counts, as a processor's code."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * arguments), "product")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emit(builder, *function.args)
    builder.ret_void()
    target = binding.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    passes = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(parsed, passes)
    return target.emit_assembly(parsed)


def assembly(form: int, triple: str, processor: str) -> str:
    """The code of a product of ROWS rows."""
    emit: Any = integers.multiply_rounded._defn.__wrapped__
    rows = ir.Constant(I64, ROWS)
    return assembled(lambda builder, *given: emit(builder, form, ROWS, 0, PANELS, rows, *given), 7, triple, processor)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("way", "triple", "processor", "multiplies"), PROCESSORS)
def test_the_instruction_multiplies_and_nothing_is_called(
    name: str, way: str, triple: str, processor: str, multiplies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dots, "way", lambda: way)
    monkeypatch.setattr(integers, "way", lambda: way)
    code = assembly(FORMS[name], triple, processor)
    expected = ROWS * PANELS * QUADS * 16 // LANES[way]
    assert len(re.findall(multiplies, code)) >= expected
    assert not re.findall(r"\b(?:call|bl)\s", code)
