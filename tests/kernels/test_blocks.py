"""Weights in blocks: tables and parts of unlike storage against what they stand for, and what the compiler makes."""

from pathlib import Path

import pytest
import torch

from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Joined
from specchat.engine.formats.quantise import dequantised
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.blocks import FORMS
from specchat.engine.gpu_checks.references import reference_embed
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.gpu_shapes import RESIDENT
from specchat.engine.kernels.products import activates, multiply, splits
from tests.kernels import compiled
from tests.kernels.test_rowwise import DEVICE, DTYPES, random

PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "products.md"
CASES, MANY, TABLES = (f"tests.kernels.cases_blocks:{name}" for name in ("CASES", "MANY", "TABLES"))
LIMITS = {
    "Q4_0": (80, 26_624, 5.0, 416, 556),
    "Q4_1": (96, 28_672, 5.1, 480, 548),
    "Q5_0": (96, 30_720, 5.5, 400, 646),
    "Q5_1": (96, 32_768, 5.6, 416, 638),
    "Q8_0": (78, 21_504, 5.2, 280, 250),
    "Q2_K": (96, 18_944, 5.5, 252, 646),
    "Q3_K": (96, 23_040, 5.7, 332, 672),
    "Q4_K": (96, 27_136, 5.2, 428, 546),
    "Q5_K": (96, 31_232, 5.7, 412, 636),
    "Q6_K": (112, 35_328, 5.6, 444, 632),
    "IQ4_NL": (128, 26_624, 4.8, 416, 780),
    "IQ4_XS": (128, 26_112, 4.9, 368, 788),
    "IQ3_XXS": (88, 20_992, 4.8, 268, 730),
    "IQ3_S": (112, 22_528, 5.0, 292, 790),
    "IQ2_XXS": (80, 16_896, 3.9, 236, 624),
    "IQ2_XS": (96, 17_920, 4.4, 248, 724),
    "IQ2_S": (96, 18_944, 4.3, 260, 678),
}
"""Of one row, by type: registers, shared memory, instructions a weight; of a pass: shared memory, integers."""
OTHERS = {
    "Q2_K, 8 rows in wide programs": (96, 29_696, 5.5, 472, 1272),
    "Q4_K, 8 rows in wide programs": (104, 46_080, 5.2, 824, 1084),
    "IQ4_XS, 8 rows in wide programs": (128, 44_032, 4.8, 704, 1552),
    "Q4_K with silu, 8 rows": LIMITS["Q4_K"],
    "Q4_0 of 896 inputs, 8 rows": (72, 13_312, 5.5, 152, 296),
    "Q5_0 of 2880 inputs, 8 rows": (64, 8192, 8.6, 100, 240),
    "Q4_K gates of experts, 8 rows": LIMITS["Q4_K"],
    "Q4_K of experts, 8 rows": LIMITS["Q4_K"],
    "Q6_K gates of experts, 8 rows": (128, 35_328, 5.6, 444, 632),
    "Q6_K of experts, 8 rows": (128, 35_328, 5.6, 444, 632),
}
LOOK_UPS = {"IQ3_XXS": 32, "IQ3_S": 32, "IQ2_XXS": 16, "IQ2_XS": 16, "IQ2_S": 16}
"""Rows of a codebook that a thread loads in a pass."""
CODES_SPILL = 40
"""Bytes that a program of 64 rows and a code stores and loads again."""


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_a_table_in_blocks(kind: str, dtype: torch.dtype) -> None:
    """Rounded to the compute dtype, as an executor without the blocks would hold them."""
    table, hidden = place.blocks_of(kind, 50, 1280), 1280
    tokens = torch.tensor([0, 49, 3, 50, 7], dtype=torch.int32, device=DEVICE)
    for scale, eps in ((1.0, None), (12.5, 1e-2)):
        residual = torch.full((5, hidden), 7.0, device=DEVICE)
        embed(tokens, in_words(table), residual, 4, scale, eps, dtype)
        expected = reference_embed(tokens[:4], dequantised(table, dtype), scale, eps)
        torch.testing.assert_close(residual[:4], expected, rtol=0 if eps is None else 1e-5, atol=0)
        assert (residual[4] == 7).all(), "a row beyond the count was written"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_of_unlike_storage_have_a_launch_each(dtype: torch.dtype) -> None:
    inputs, parts = 512, [place.blocks_of("Q4_K", 96, 512), place.blocks_of("Q6_K", 34, 512)]
    dense = random(64, inputs, seed=4).to(dtype)
    weight = Joined((*map(in_words, parts), dense))
    truth = torch.cat([*(dequantised(part, dtype).double() for part in parts), dense.double()])
    x, bias = random(64, inputs, seed=1).to(dtype), random(len(truth), seed=2)
    assert not activates(weight)

    def run(first: int, rows: int) -> torch.Tensor:
        out = torch.full((splits(weight), 64, len(truth)), 7.0, device=DEVICE)
        multiply(x[first:].contiguous(), weight, bias, out, rows)
        assert (out[:, rows:] == 7).all(), "a row beyond the count was written"
        return out[:, :rows]

    expected, most = x.double() @ truth.T + bias.double(), x.double().abs() @ truth.abs().T + bias.double().abs()
    assert ((run(0, 64).sum(0).double() - expected).abs() <= 4e-6 * most).all()
    for rows in (5, 17, 64):
        for row in (0, rows - 1):
            assert torch.equal(run(0, rows)[:, row], run(row, 1)[:, 0])


def check(report: compiled.Report, limits: tuple[int, int, float, int, int], spilled: int = 0) -> None:
    registers, shared, instructions, wavefronts, integers = limits
    compiled.check_limits(report, registers, shared, spilled)
    compiled.check_loop(report, instructions, wavefronts, barriers=3)
    assert report.integers <= integers, report
    assert report.loads == LOOK_UPS.get(report.name.split(",")[0], 0), f"{report.name}: something is not copied ahead"
    assert report.tensor_cores == compiled.BFLOAT16_MMA, report


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    found, limits = compiled.reports(CASES, architectures), {f"{kind}, 8 rows": one for kind, one in LIMITS.items()}
    compiled.check_names(found, {*limits, *OTHERS}, architectures)
    for report in found:
        check(report, (limits | OTHERS)[report.name])


def test_the_page_has_the_instructions_of_each_form() -> None:
    page = PAGE.read_text()
    for kind, (registers, shared, instructions, _, integers) in LIMITS.items():
        assert f"| {kind} | {instructions} | {integers} | {registers} | {shared // 1024} |" in page, kind


@pytest.mark.slow
@pytest.mark.parametrize("architectures", [(80, 86, 89, 90, 120)])
def test_many_rows_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """One ceiling for whole numbers, one for codes, which keep tables, and one for codebooks."""
    found = compiled.reports(MANY, architectures)
    assert {report.name for report in found} == {f"{kind}, 64 rows" for kind in FORMS}
    for report in found:
        if report.name.split(",")[0] in LOOK_UPS:
            check(report, (255, 39_936, 9.4, 1600, 860), 8 if report.name.startswith("IQ3_S") else 0)
        elif report.name.startswith("IQ"):
            check(report, (255, 43_264, 10.3, 1600, 1220), CODES_SPILL)
        else:
            check(report, (200, 46_336, 9.1, 1600, 740))


@compiled.NEWEST
def test_tables_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    for report in compiled.reports(TABLES, architectures):
        compiled.check_limits(report, 128, 4096)


@compiled.NEWEST
def test_as_many_programs_fit_a_multiprocessor_as_the_cut_counts_on(architectures: tuple[int, ...]) -> None:
    for report in compiled.reports(CASES, architectures):
        kind, _, rest = report.name.partition(", ")
        if rest == "8 rows" and kind in FORMS:
            programs = RESIDENT[TYPES[kind].layout.bits]
            assert programs * (report.shared + 1024) <= compiled.SHARED_LIMIT[report.architecture] + 1024, report
            assert programs * report.threads * -(-report.registers // 8) * 8 <= 65_536, report
