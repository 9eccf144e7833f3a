"""Weights in blocks: tables and parts of unlike storage against what they stand for, and what the compiler makes."""

import pytest
import torch

from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Joined
from specchat.engine.formats.quantise import dequantised
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.blocks import FORMS
from specchat.engine.kernels.embed import embed, reference_embed
from specchat.engine.kernels.gpu_shapes import RESIDENT
from specchat.engine.kernels.products import activates, multiply, splits
from tests.kernels import compiled
from tests.kernels.test_rowwise import DEVICE, DTYPES, random

CASES, MANY, TABLES = (f"tests.kernels.cases_blocks:{name}" for name in ("CASES", "MANY", "TABLES"))
LIMITS = {
    "Q4_0": (80, 26_624, 4.92, 416, 538),
    "Q4_1": (96, 28_672, 5.0, 480, 536),
    "Q5_0": (96, 30_720, 5.4, 400, 632),
    "Q5_1": (96, 32_768, 5.5, 416, 632),
    "Q8_0": (72, 21_504, 4.92, 280, 242),
    "Q2_K": (88, 18_944, 5.42, 252, 632),
    "Q3_K": (96, 23_040, 5.5, 284, 650),
    "Q4_K": (96, 27_136, 5.06, 428, 540),
    "Q5_K": (96, 31_232, 5.56, 412, 626),
    "Q6_K": (112, 35_328, 5.5, 444, 620),
    "IQ4_NL": (114, 26_624, 4.7, 416, 764),
    "IQ4_XS": (120, 26_112, 4.8, 368, 778),
    "IQ2_XXS": (128, 22_016, 6.4, 304, 1066),
    "IQ2_S": (128, 23_040, 6.0, 284, 938),
}
"""Registers, shared memory, instructions a weight; of a pass: shared memory, integers."""


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


def check(report: compiled.Report, registers: int, shared: int, instructions: float, wavefronts: int) -> None:
    compiled.check_limits(report, registers, shared)
    compiled.check_loop(report, instructions, wavefronts, barriers=2)
    assert report.loads == 0, f"{report.name}: something is not copied ahead"
    assert report.tensor_cores == compiled.BFLOAT16_MMA, report


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    more = {}
    found = compiled.reports(CASES, architectures)
    assert {report.name for report in found} == {*(f"{kind}, 8 rows" for kind in LIMITS), *more}
    for report in found:
        *limits, integers = LIMITS.get(report.name.partition(",")[0], ()) if report.name not in more else more[report.name]
        check(report, *limits)
        assert report.integers <= integers, report


@pytest.mark.slow
@pytest.mark.parametrize("architectures", [(80, 86, 89, 90, 120)])
def test_many_rows_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """Whatever the form, within the memory and the instructions of one ceiling."""
    found = compiled.reports(MANY, architectures)
    assert {report.name for report in found} == {f"{kind}, 64 rows" for kind in FORMS}
    for report in found:
        check(report, 240, 46_336, 10.3, 1600)


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
