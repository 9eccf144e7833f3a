"""The whole path of `bench kernels` at tiny shapes and with a scripted timer; on a GPU also as it is."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from specchat.bench import gpu as gpu_module
from specchat.bench import kernels as kernels_module
from specchat.bench.device_timer import Body, CudaTimer
from specchat.bench.gpu import require_gpu
from specchat.bench.kernel_case import copies_of, rows_alike
from specchat.bench.kernel_products import FORMATS, bitsandbytes_call, copied, quantised, weight_bytes
from specchat.bench.kernel_table import as_json, heading, not_alike, summary, table
from specchat.bench.kernels import Machine, Measured, measure, on_this_gpu
from specchat.bench.published import shaped
from specchat.bench.summary import Spread
from specchat.cli.bench import bench
from specchat.cli.exit_codes import ExitCode
from specchat.engine.errors import EngineError
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.model.gpu import Gpu
from specchat.engine.model.quantise import dequantised, quantise

TINY = shaped("qwen3", 64, 64, 1, 4, 2, 16, 96, 256, 1e6, tied=False)
MICROSECONDS = Spread(4.0, 3.0, 6.0, 50)


class Scripted:
    """Runs a body once a copy, and says it took 4 microseconds."""

    def __init__(self, fails: str = "") -> None:
        self.calls = 0
        self._fails = fails

    def time(self, body: Body, copies: int) -> Spread:
        for copy in range(min(copies, 2)):
            body(copy)
        self.calls += 1
        if self._fails and self.calls > 1:
            raise RuntimeError(self._fails)
        return MICROSECONDS

    def bandwidth(self) -> float:
        return 1e9


def figure(**changes: object) -> Measured:
    made = Measured("products", "down 64x64 nf4", "specchat", 1, MICROSECONDS, 2**20, 0.5, True)
    return replace(made, **changes)  # type: ignore[arg-type]


# What is measured.


@pytest.fixture(scope="module")
def all_measured() -> list[Measured]:
    """Every kernel at tiny shapes, 1 and 3 rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_module, "ROWS", (1, 3))
        return list(measure(TINY, torch.device("cpu"), torch.float32, Scripted(), 1e9, False, 1, (40,)))


def test_every_kernel_of_a_step_is_measured_and_its_rows_are_those_alone(all_measured: list[Measured]) -> None:
    ours = [m for m in all_measured if m.by == "specchat"]
    assert all(m.alike for m in ours)
    # Four matrices in four formats and the head, attention in splits of three lengths, embed, norm, rope, activation,
    # two ways of sampling.
    assert len(ours) == 2 * (4 * 4 + 1 + 3 + 4 + 2)
    assert {m.group for m in ours} == {"products", "attention", "row-wise", "verification"}
    assert {m.rows for m in ours} == {1, 3}


def test_quantised_products_have_both_rivals_and_the_head_only_cublas(all_measured: list[Measured]) -> None:
    rivals = {m.what: {n.by for n in all_measured if n.what == m.what} for m in all_measured if m.group == "products"}
    assert len(rivals) == 17
    for what, by in rivals.items():
        dense = what.startswith("head")
        assert by == {"specchat", "cuBLAS"} | (set() if dense else {"bitsandbytes"}), what
    assert not any(m.error for m in all_measured)


def test_the_share_of_the_bandwidth_is_bytes_read_over_time(all_measured: list[Measured]) -> None:
    nf4 = next(m for m in all_measured if m.what == "down 64x64 nf4")
    # 64 x 64 nibbles, a float32 scale for each 64 of them, and the table of 16.
    assert nf4.read == 64 * 64 // 2 + 64 * 4 + 64
    assert nf4.bandwidth == pytest.approx(nf4.read / 4e-6 / 1e9)
    attention = next(m for m in all_measured if m.group == "attention")
    assert attention.read == 2 * 40 * TINY.kv_heads * TINY.head_dim * 4
    assert all(m.bandwidth is None for m in all_measured if m.group == "row-wise")


def test_a_kernel_of_ours_that_fails_is_no_figure() -> None:
    timer = Scripted(fails="an illegal memory access was encountered")
    figures = measure(TINY, torch.device("cpu"), torch.float32, timer, 1e9, True, 1)
    assert next(figures).rows == 1
    with pytest.raises(RuntimeError, match="illegal memory access"):
        next(figures)


def test_memory_that_runs_out_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.16 GiB.")

    monkeypatch.setattr(kernels_module, "product_cases", full)
    with pytest.raises(EngineError, match="GPU memory ran out") as raised:
        next(measure(TINY, torch.device("cpu"), torch.float32, Scripted(), 1e9, True, 1))
    assert raised.value.kind == "memory"


def test_a_rival_that_fails_has_the_first_line_of_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_module, "QUICK_ROWS", (1,))
    timer = Scripted(fails="no kernel for this shape\nmore")
    figures = measure(TINY, torch.device("cpu"), torch.float32, timer, 1e9, True, 1)
    ours, bitsandbytes = islice(figures, 2)
    assert (ours.us, bitsandbytes.us, bitsandbytes.error) == (MICROSECONDS, None, "no kernel for this shape")
    assert "not measured: no kernel for this shape" in table([ours, bitsandbytes])


@pytest.mark.parametrize("name", list(FORMATS))
def test_bitsandbytes_multiplies_the_same_weights(name: str) -> None:
    quant, nested = FORMATS[name]
    weight = quantised(torch.randn(64, 128) / 11, quant, nested)
    x = torch.randn(3, 128)
    exact = x.double() @ dequantised(weight, torch.float32).double().t()
    theirs = bitsandbytes_call(weight, quant, torch.float32)(x)
    out = torch.empty(splits(weight), 3, 64)
    multiply(x, weight, None, out, 3)
    torch.testing.assert_close(out.sum(0).double(), exact, atol=1e-5, rtol=1e-5)
    # LLM.int8 rounds the activations too.
    loose = 0.05 if quant == "int8" else 1e-5
    torch.testing.assert_close(theirs.double(), exact, atol=loose, rtol=loose)


def test_copies_are_other_memory_with_the_same_values_and_fill_what_is_asked() -> None:
    weight = quantise(torch.randn(64, 128), "nf4")
    other = copied(weight)
    assert weight_bytes(other) == weight_bytes(weight)
    assert torch.equal(dequantised(other, torch.float32), dequantised(weight, torch.float32))
    assert vars(other)["packed"].data_ptr() != vars(weight)["packed"].data_ptr()
    assert [copies_of(size, 100) for size in (10, 33, 100, 101, 500)] == [10, 4, 1, 1, 1]


def test_a_row_that_depends_on_its_neighbours_is_noticed() -> None:
    x = torch.randn(8, 4)

    def coupled(first: int, rows: int) -> torch.Tensor:
        return x[first : first + rows] + 1e-6 * (rows - 1)

    alike = rows_alike(coupled)
    assert alike(1)
    assert not alike(3)
    assert rows_alike(lambda first, rows: x[first : first + rows])(8)


# What is shown.

MACHINE = Machine("a host, torch 2", "A card", 1e12)


def test_the_table_has_ratios_to_one_row_and_to_ours() -> None:
    slow = Spread(8.0, 7.5, 9.0, 50)
    text = table(
        [
            figure(),
            figure(rows=2, us=slow),
            figure(by="bitsandbytes", us=Spread(2.0, 2.0, 2.0, 50), bandwidth=None),
            figure(by="bitsandbytes", rows=2, us=Spread(24.0, 24.0, 24.0, 50), alike=False),
        ]
    )
    head, names, *rows = text.splitlines()
    assert head == "down 64x64 nf4  (1.0 MiB)"
    assert names.split() == ["rows", "us", "quartiles", "x", "1", "memory", "alone", "ours"]
    assert rows[0].split() == ["specchat", "1", "4.00", "3.00-6.00", "1.00", "50%", "yes"]
    assert rows[1].split() == ["2", "8.00", "7.50-9.00", "2.00", "50%", "yes"]
    assert rows[2].split() == ["bitsandbytes", "1", "2.00", "2.00-2.00", "1.00", "yes", "0.50"]
    assert rows[3].split() == ["2", "24.00", "24.00-24.00", "12.00", "50%", "no", "3.00"]


def test_the_summary_counts_rows_equal_to_rows_alone() -> None:
    measured = [
        figure(),
        figure(rows=2, alike=False),
        figure(by="cuBLAS", alike=False),
        figure(by="cuBLAS", alike=None),
    ]
    assert summary(measured).splitlines() == [
        "specchat: rows equal to rows alone in 1 of 2 cases",
        "cuBLAS: rows equal to rows alone in 0 of 1 cases",
    ]
    assert not_alike(measured) == ["down 64x64 nf4 at 2 rows"]


def test_the_json_names_units_by_fields_that_can_be_read_back() -> None:
    data = json.loads(json.dumps(as_json(MACHINE, [figure()])))
    assert data["machine"] == {"host": "a host, torch 2", "device": "A card", "bandwidth": 1e12}
    assert data["kernels"][0]["us"] == {"median": 4.0, "low": 3.0, "high": 6.0, "n": 50}
    assert "1000 GB/s" in heading(MACHINE)


# The command.


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command as if a GPU gave the figures."""

    def run(figures: Iterator[Measured] | list[Measured], *arguments: str) -> Result:
        monkeypatch.setattr(gpu_module, "find_gpu", lambda: Gpu("A card", 1 << 34))
        monkeypatch.setattr(kernels_module, "on_this_gpu", lambda *_: (MACHINE, iter(figures)))
        return CliRunner().invoke(bench, ["kernels", *arguments])

    return run


def test_the_command_writes_tables_and_json(command: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    result = command([figure(), figure(rows=2), figure(what="norm 64")], "--json", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.count("quartiles") == 3  # two tables and the explanation
    assert "specchat: rows equal to rows alone in 3 of 3 cases" in result.stdout
    assert len(json.loads(file.read_text())["kernels"]) == 3


def test_a_row_with_other_bits_is_an_error(command: Callable[..., Result]) -> None:
    result = command([figure(), figure(rows=8, alike=False)])
    assert result.exit_code == ExitCode.DIFFERENT
    assert "Rows differ from rows alone: down 64x64 nf4 at 8 rows." in result.stderr


def test_ctrl_c_keeps_what_was_measured(command: Callable[..., Result], tmp_path: Path) -> None:
    def figures() -> Iterator[Measured]:
        yield figure()
        signal.raise_signal(signal.SIGINT)
        yield figure(rows=2)
        raise AssertionError("went on after ctrl+c")

    result = command(figures(), "--json", str(tmp_path / "k.json"))
    assert result.exit_code == ExitCode.INTERRUPTED, result.output
    assert len(json.loads((tmp_path / "k.json").read_text())["kernels"]) == 2


def test_a_file_in_no_folder_is_refused_before_anything_runs(command: Callable[..., Result], tmp_path: Path) -> None:
    result = command([], "--json", str(tmp_path / "none" / "k.json"))
    assert result.exit_code == ExitCode.USAGE
    assert "there is no folder" in result.stderr


def test_without_a_gpu_one_sentence_and_the_documented_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "find_gpu", lambda: "no NVIDIA GPU is found")
    with pytest.raises(EngineError, match="bench kernels needs a CUDA GPU: no NVIDIA GPU is found"):
        require_gpu("bench kernels")
    result = CliRunner().invoke(bench, ["kernels"])
    assert result.exit_code == ExitCode.UNUSABLE
    assert result.output == "Error: bench kernels needs a CUDA GPU: no NVIDIA GPU is found.\n"


# On a GPU.


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_quick_run_measures_everything() -> None:
    gpu = require_gpu("the test")
    machine, figures = on_this_gpu(gpu, quick=True)
    measured = list(figures)
    assert machine.bandwidth > 1e10
    assert not not_alike(measured)
    assert all(m.us is not None and m.us.low > 0 for m in measured if m.by == "specchat")
    assert all(m.bandwidth is None or 0 < m.bandwidth < 1.5 for m in measured)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_timed_copy_takes_what_the_bandwidth_says() -> None:
    timer = CudaTimer(10)
    source = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(source)
    us = timer.time(lambda _: other.copy_(source), 2).median
    assert 2 * source.numel() / (1e-6 * us) == pytest.approx(timer.bandwidth(), rel=0.3)
