"""What a run of the checks lets later loads know of a card."""

from pathlib import Path

import pytest

from specchat.doctor.gpu_checks import CHECKS, GpuCheck
from specchat.doctor.gpu_report import GpuReport, Listener, Outcome, run_all
from specchat.doctor.gpu_verdict import remember
from specchat.engine.hardware.gpu_record import VARIABLE, GpuRecord
from tests.doctor.test_gpu_report import environment, planted

FOUND = Outcome("passed", rows=[{"gpu": "RTX 3060", "known by": "RTX 3060 with a driver"}])


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuRecord:
    """Of a card that both ways failed on before, by their checks or with a pair."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpu.json"))
    made = GpuRecord.of("RTX 3060 with a driver")
    made.keep("kernels", "before")
    for _ in range(2):
        made.fail("kernels", "in a reply", "p")
        made.fail("transformers", "before", "p")
    made.keep("kernels", "before")
    return made


def judged(tmp_path: Path, **outcomes: Outcome) -> None:
    report = GpuReport(tmp_path / "r.zip")
    for check in CHECKS:
        report.add(check.name, outcomes.get(check.name.replace("-", "_"), Outcome("passed")))
    remember(CHECKS, report)


def test_all_that_pass_clear_both_ways_at_once(record: GpuRecord, tmp_path: Path) -> None:
    assert [record.wrong("kernels", "p"), record.wrong("transformers", "p")] == ["before", "before"]
    judged(tmp_path, environment=FOUND)
    assert [record.wrong("kernels", "p"), record.wrong("transformers", "p")] == ["", None]


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("compile", Outcome("wrong", words="fault")),
        ("rows", Outcome("out of time", words="fault")),
        ("trees", Outcome("failed", words="fault")),
        ("bandwidth", Outcome("failed", words="exit code 1: CUDA error: unspecified launch failure")),
    ],
)
def test_a_fault_of_the_card_is_kept_whatever_passes_after(
    name: str, outcome: Outcome, record: GpuRecord, tmp_path: Path
) -> None:
    """A failure that may pass is tried once more first."""
    judged(tmp_path, environment=FOUND)
    for _ in range(1 if outcome.state == "wrong" else 2):
        assert record.wrong("kernels") in ("", None)
        judged(tmp_path, environment=FOUND, **{name: outcome})
    assert record.wrong("kernels") == f"{name}: {outcome.words}"
    assert record.passes("kernels") == (outcome.state != "wrong")


@pytest.mark.parametrize("state", ["no memory", "not run"])
def test_what_says_nothing_of_the_card_changes_nothing(state: str, record: GpuRecord, tmp_path: Path) -> None:
    judged(tmp_path, environment=FOUND, kernels=Outcome(state))  # type: ignore[arg-type]
    assert record.wrong("kernels") == "before"


def test_logits_that_are_apart_take_no_card_out_of_use(record: GpuRecord, tmp_path: Path) -> None:
    judged(tmp_path, environment=FOUND, demo_nf4=Outcome("wrong", words="logits, most: off by 2"))
    assert record.wrong("kernels") == ""


def test_without_a_gpu_nothing_is_kept(record: GpuRecord, tmp_path: Path) -> None:
    judged(tmp_path)
    assert record.wrong("kernels") == "before"


def test_a_process_tells_that_memory_ran_out(record: GpuRecord, tmp_path: Path) -> None:
    report = GpuReport(tmp_path / "r.zip")
    lacking = planted("lacks_memory")
    checks = [environment("with_a_gpu"), GpuCheck("big", "", lacking.function, "torch", 60, judges=True)]
    run_all(checks, report, Path("/demo"), Listener())
    remember(checks, report)
    assert (report.outcomes["big"].state, report.outcomes["big"].words) == ("no memory", "MemoryError: no room")
    assert record.wrong("kernels") == "before"
