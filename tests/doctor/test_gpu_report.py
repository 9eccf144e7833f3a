"""`specchat doctor --gpu`: every check runs whatever failed before, and the report is whole after each."""

import json
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.doctor import gpu_checks, gpu_report
from specchat.doctor.gpu_checks import CHECKS, ENVIRONMENT, GpuCheck
from specchat.doctor.gpu_report import GpuReport, Listener, Outcome, run_all
from specchat.doctor.versions import commit
from tests.cli.conftest import Run, home, run

__all__ = ["home", "run"]


def planted(name: str, needs: gpu_checks.Needs = "torch", limit_s: float = 60.0) -> GpuCheck:
    return GpuCheck(name, f"does {name}", f"tests.doctor.planted:{name}", needs, limit_s)


def environment(name: str) -> GpuCheck:
    return replace(planted(name), name="environment")


def content(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as made:
        assert made.testzip() is None
        written: dict[str, Any] = json.loads(made.read("report.json"), parse_constant=pytest.fail)
    return written


def test_every_check_that_is_named_is_there() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        module, _, function = check.function.partition(":")
        assert callable(getattr(import_module(module), function)), check


def test_all_run_whatever_failed_before_and_each_is_in_the_report_at_once(tmp_path: Path) -> None:
    report, states = GpuReport(tmp_path / "r.zip"), dict[str, str]()

    def ended(check: GpuCheck, outcome: Outcome) -> None:
        states[check.name] = outcome.state
        kept = content(report.path)["checks"]
        assert {name: one["state"] for name, one in kept.items()} == states

    # The time limit is met by a process that never ends, not by one that is slow.
    hanging = planted("hangs", limit_s=5.0)
    checks = [environment("with_a_gpu"), planted("raises"), planted("dies"), hanging, planted("wrong"), planted("fine"),
              planted("unavailable", "gpu")]  # fmt: skip
    run_all(checks, report, Path("/demo"), Listener(ended=ended))
    assert states == {
        "environment": "passed", "raises": "failed", "dies": "failed", "hangs": "out of time", "wrong": "wrong",
        "fine": "passed", "unavailable": "not run",
    }  # fmt: skip
    sentence = report.finish()
    assert sentence.startswith("5 of 7 checks went wrong on RTX 3060: raises, dies, hangs, wrong, unavailable. Attach ")
    assert str(report.path) in sentence
    written = content(report.path)
    assert [row["error"] for row in written["checks"]["wrong"]["rows"]] == [0.5, "nan"]
    assert written["sentence"] == sentence
    checks = written["checks"]
    assert all(checks[name]["rows"] == [{"before": 1}] for name in ("raises", "dies", "hangs"))
    assert checks["wrong"]["words"] == "sum: off by 0.5, and 0.1 is allowed (and 1 more)"
    assert checks["dies"]["words"] == "exit code 9: it wrote nothing"
    assert "last line is: begun" in checks["hangs"]["words"]
    assert written["last CUDA error"].startswith("raises: RuntimeError: CUDA error: an illegal memory access")
    assert "\x1b" not in json.dumps(written, ensure_ascii=False)
    with zipfile.ZipFile(report.path) as made:
        assert made.read("fine/trace.json") == b"{}"
        assert b"Traceback" in made.read("raises/log.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["r.zip"]


def test_without_a_gpu_kernels_are_interpreted_and_the_rest_is_not_run(tmp_path: Path) -> None:
    report = GpuReport(tmp_path / "r.zip")
    checks = [environment("without_a_gpu"), planted("fine", "kernels"), planted("dies", "gpu")]
    run_all(checks, report, Path("/demo"), Listener())
    assert report.outcomes["fine"].rows == [{"demo": "/demo", "interpreted": "1"}]
    assert (report.outcomes["dies"].state, report.outcomes["dies"].words) == ("not run", "no GPU")
    assert report.finish() == (
        "specchat's own kernels run on no GPU here: no NVIDIA GPU is found. 2 checks passed without one, and 1 were "
        f"not run. If they should run on one, attach {tmp_path / 'r.zip'} to your report."
    )


def test_a_card_that_goes_between_checks_is_no_success(tmp_path: Path) -> None:
    report = GpuReport(tmp_path / "r.zip")
    # By itself this one finds nothing wrong, whatever there is.
    again = replace(ENVIRONMENT, name="again")
    checks = [environment("with_a_gpu"), again, planted("unavailable", "gpu")]
    run_all(checks, report, Path("/demo"), Listener())
    assert report.outcomes["again"].words == "RTX 3060 is gone: torch sees no GPU"
    assert report.bad == ["again", "unavailable"]
    assert "Attach" in report.finish()


@pytest.mark.parametrize(("found", "visible"), [("two_gpus", "GPU-uuid-1"), ("with_a_gpu", None)])
def test_of_two_gpus_all_checks_get_the_one_that_was_found(
    found: str, visible: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    report = GpuReport(tmp_path / "r.zip")
    run_all([environment(found), planted("sees")], report, Path("/demo"), Listener())
    assert report.outcomes["sees"].rows == [{"visible": visible}]
    _, *others = report.finish().removesuffix(".").split(" GPU ")
    command = "CUDA_VISIBLE_DEVICES=GPU-uuid-0 specchat doctor --gpu --report other.zip"
    unchecked = [
        f'0 (RTX 3090) was not checked: "{command}" does that.',
        "2 was not checked and does not start: out of memory",
    ]
    assert others == (unchecked if visible else [])
    assert content(report.path)["sentence"] == report.sentence


def test_where_the_environment_is_not_known_everything_is_tried(tmp_path: Path) -> None:
    report = GpuReport(tmp_path / "r.zip")
    run_all([environment("dies"), planted("unavailable", "gpu")], report, Path("/demo"), Listener())
    assert [outcome.state for outcome in report.outcomes.values()] == ["failed", "not run"]


@pytest.mark.parametrize(("package", "needs"), [("torch", "gpu"), ("triton", "kernels")])
def test_a_missing_package_is_the_reason(
    package: str, needs: gpu_checks.Needs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_report, "find_spec", lambda name: None if name == package else object())
    report = GpuReport(tmp_path / "r.zip")
    run_all([planted("dies", needs)], report, Path("/demo"), Listener())
    assert report.outcomes["dies"].words == f"{package} is not installed"


def test_what_the_driver_says_and_the_last_error_of_the_engine_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho Xid 79\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    log = tmp_path / "engine.log"
    log.write_text("begun\nRuntimeError: CUDA error: unspecified launch failure\na reply's business\n")
    report = GpuReport(tmp_path / "r.zip", log)
    with zipfile.ZipFile(report.path) as made:
        assert made.read("nvidia-smi.txt") == b"Xid 79\n"
        assert made.read("engine.log") == b"begun\nRuntimeError: CUDA error: unspecified launch failure\n"
    assert "unspecified launch failure" in content(report.path)["last CUDA error"]


def test_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    assert len(commit().partition("-")[0]) == 40
    assert commit(tmp_path) == ""


def test_the_command_shows_a_line_a_check_and_ends_with_a_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_checks, "CHECKS", (environment("with_a_gpu"), planted("fine")))
    path = tmp_path / "sent.zip"
    done = run("doctor", "--gpu", "--report", str(path))
    assert done.exit_code == 0, done.output
    *lines, empty, sentence = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["passed", "environment"], ["passed", "fine"]]
    assert (empty, sentence.split(".")[0]) == ("", "All 2 checks passed on RTX 3060")
    monkeypatch.setattr(gpu_checks, "CHECKS", (planted("wrong"),))
    done = run("doctor", "--gpu", "--report", str(path), "--json")
    assert done.exit_code == ExitCode.UNUSABLE
    written = json.loads(done.stdout)
    assert (written["report"], written["checks"]["wrong"]["state"]) == (str(path), "wrong")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(run: Run, tmp_path: Path) -> None:
    done = run("doctor", "--gpu", "--report", str(tmp_path / "none" / "r.zip"))
    assert done.exit_code == ExitCode.USAGE
    assert "cannot be written" in done.stderr
    for wrong in (("--report", "r.zip"), ("--gpu", "--engine")):
        assert run("doctor", *wrong).exit_code == ExitCode.USAGE


@pytest.mark.slow
def test_the_whole_command_on_this_machine(run: Run, tmp_path: Path) -> None:
    done = run("doctor", "--gpu", "--report", str(tmp_path / "r.zip"))
    assert done.exit_code == 0, done.output
    written = content(tmp_path / "r.zip")
    states = {name: one["state"] for name, one in written["checks"].items()}
    there = "gpu" in written["checks"]["environment"]["rows"][0]
    assert states == {check.name: "not run" if check.needs == "gpu" and not there else "passed" for check in CHECKS}
