"""The doctor's checks by themselves: each says what it finds and what to do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.config.catalog import Pair
from specchat.doctor import gpu, versions
from specchat.doctor.engine import engine
from specchat.doctor.finding import Finding
from specchat.doctor.folders import folder
from specchat.doctor.terminal import clipboard, terminal
from specchat.engine.hardware.gpu_failure import REPORT, UNTIL
from specchat.engine.hardware.gpu_record import VARIABLE, GpuRecord
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.pair_info import StrategyStatus
from specchat.service.loading import Stopped
from tests import fake
from tests.fake import FakeEngine
from tests.fake_nvml import GPU, FakeNvml, NVMLError
from tests.parts import changed

GOOD = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "de_DE.UTF-8"}
SIZE = os.terminal_size((100, 30))
PAIR = Pair(PairSpec("mine", "Mine", ModelSource(path="/t")))


def looked_at(environ: dict[str, str], size: os.terminal_size | None = SIZE) -> dict[str, Finding]:
    return {finding.name: finding for finding in terminal({**GOOD, **environ}, size)}


def test_a_good_terminal_is_all_ok() -> None:
    found = looked_at({})
    assert {finding.status for finding in found.values()} == {"ok"}
    assert "100 x 30" in found["terminal"].text
    assert "ctrl+j" in found["keys"].text


@pytest.mark.parametrize(
    ("environ", "size", "name", "words"),
    [
        ({"TERM": "dumb"}, SIZE, "terminal", "TERM is dumb"),
        ({}, None, "terminal", "needs one"),
        ({}, os.terminal_size((39, 30)), "terminal", "40 x 12"),
        ({}, os.terminal_size((80, 11)), "terminal", "40 x 12"),
        ({"NO_COLOR": "1"}, SIZE, "colours", "NO_COLOR"),
        ({"COLORTERM": ""}, SIZE, "colours", "256 colours"),
        ({"COLORTERM": "", "TERM": "linux"}, SIZE, "colours", "16 colours"),
        ({"LC_ALL": "C"}, SIZE, "characters", "LANG=C.UTF-8"),
        ({"TMUX": "/tmp/x"}, SIZE, "multiplexer", "set-clipboard"),
        ({"STY": "1.x"}, SIZE, "multiplexer", "GNU screen"),
        ({"SSH_CONNECTION": "1 2"}, SIZE, "remote", "OSC 52"),
    ],
)
def test_what_a_terminal_lacks_is_noted(
    environ: dict[str, str], size: os.terminal_size | None, name: str, words: str
) -> None:
    finding = looked_at(environ, size)[name]
    assert finding.status == "note"
    assert words in finding.text


@pytest.mark.parametrize(
    ("environ", "there", "status", "words"),
    [
        ({"WAYLAND_DISPLAY": "w"}, {"wl-copy", "xclip"}, "ok", "wl-copy"),
        ({"DISPLAY": ":0"}, {"wl-copy", "xsel"}, "ok", "xsel"),
        ({"DISPLAY": ":0"}, set(), "note", "Install xclip"),
        ({}, {"xclip"}, "note", "may ignore it"),
        ({}, {"pbcopy"}, "ok", "pbcopy"),
        ({"WSL_DISTRO_NAME": "d"}, {"clip.exe"}, "ok", "clip.exe"),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1"}, {"xclip"}, "ok", "OSC 52 only"),
    ],
)
def test_the_clipboard_tool_is_named(environ: dict[str, str], there: set[str], status: str, words: str) -> None:
    finding = clipboard(environ, lambda name: name if name in there else None)
    assert finding.status == status
    assert words in finding.text


def test_folders_are_looked_at_and_not_made(tmp_path: Path) -> None:
    assert "writable" in folder("x", tmp_path, "lost").text
    new = folder("x", tmp_path / "a" / "b", "lost")
    assert (new.status, "made when it is needed" in new.text) == ("ok", True)
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    blocked = folder("x", tmp_path / "file" / "b", "chats are lost")
    assert blocked.status == "note"
    assert f"{tmp_path / 'file'} is not a folder, so chats are lost" in blocked.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_others_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in folder("x", tmp_path / "a", "lost").text


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.doctor.folders.free_bytes", lambda _: 1 << 20)
    assert folder("x", tmp_path, "lost").status == "note"


def test_missing_packages_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda name: None if name in ("torch", "gguf") else "1")
    (finding,) = (finding for finding in versions.versions() if finding.name == "packages")
    assert (finding.status, finding.text.startswith("torch missing")) == ("problem", True)


def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Finding]]:
    def answer(script: str) -> list[Finding]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(gpu, "installed", lambda _: "2.11.0+cu128")
        return gpu.gpus()

    return answer


def test_gpus_as_the_driver_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = smi(tmp_path, monkeypatch)
    new, _, old, _ = look(
        "echo 'NVIDIA L4, 23034 MiB, 22000 MiB, 570.1, 8.9, GPU-5f0c';"
        "echo 'Tesla T4, 15360 MiB, 15000 MiB, 570.1, 7.5, GPU-77'"
    )
    assert (new.status, new.text.split(",")[0]) == ("ok", "NVIDIA L4")
    assert old.status == "note"
    assert "older than Ampere" in old.text
    (broken,) = look("echo 'Failed to initialize NVML'; exit 9")
    assert broken.status == "note"
    assert "Failed to initialize NVML" in broken.text
    (none,) = look("true")
    assert none.status == "note"
    (odd,) = look("echo hello")
    assert "unexpected: hello" in odd.text


def test_a_driver_without_nvidia_smi_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (none,) = gpu.gpus(tmp_path / "none")
    assert (none.status, "pairs run on the CPU" in none.text) == ("ok", True)
    (hidden,) = gpu.gpus(tmp_path)
    assert (hidden.status, "specchat doctor --gpu" in hidden.text) == ("note", True)


@pytest.mark.parametrize(
    ("missing", "status", "words"), [("", "ok", "Python.h"), ("no C compiler is found (x)", "note", "no C compiler")]
)
def test_what_triton_builds_with_is_told_beside_a_gpu_that_will_do(
    missing: str, status: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = smi(tmp_path, monkeypatch)
    monkeypatch.setattr(gpu.toolchain, "unsupported", lambda: missing)
    found = look("echo 'NVIDIA L4, 23034 MiB, 22000 MiB, 570.1, 8.9, GPU-5f0c'")[-1]
    assert (found.name, found.status) == ("gpu tools", status)
    assert words in found.text
    assert [finding.name for finding in look("echo 'Tesla T4, 15360 MiB, 15000 MiB, 570.1, 7.5, GPU-77'")] == ["gpu"]


def test_how_busy_a_gpu_is_stands_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, nvml = smi(tmp_path, monkeypatch), FakeNvml(monkeypatch)
    line = f"echo 'NVIDIA L4, 23034 MiB, 22000 MiB, 570.1, 8.9, {GPU}'"
    assert look(line)[1] == Finding("gpu use", "ok", "62 % busy")
    nvml.fails, nvml.error = "nvmlInit", NVMLError("Insufficient Permissions")
    finding = look(line)[1]
    assert (finding.name, finding.status) == ("gpu use", "note")
    assert "cannot be read (Insufficient Permissions)" in finding.text


def test_without_a_driver_the_cpu_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.shutil, "which", lambda _: None)
    assert [finding.status for finding in gpu.gpus()] == ["ok"]


def test_a_torch_for_the_cpu_beside_a_gpu_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = smi(tmp_path, monkeypatch)
    assert look("echo 'NVIDIA L4, 23034 MiB, 22000 MiB, 570.1, 8.9, GPU-5f0c'")[0].status == "ok"
    monkeypatch.setattr(gpu, "installed", lambda _: "2.11.0+cpu")
    assert "built for the CPU only" in gpu.gpus()[0].text


def shown(*_: object) -> None:
    pass


def test_the_engine_tells_what_was_measured() -> None:
    info = changed(
        fake.INFO,
        note="no GPU",
        warning="It drafts otherwise.",
        strategies=(StrategyStatus("plain", True), StrategyStatus("draft", False, "no draft")),
    )
    port = FakeEngine(info=info)
    found = {finding.name: finding for finding in engine(port, PAIR, shown, lambda: False)}
    assert "Mine on none, 64 MiB, in 0.5 s" in found["engine"].text
    apart = engine(FakeEngine(info=changed(info, second_memory=1500 << 20)), PAIR, shown, lambda: False)
    assert "Mine on none, 64 MiB, and 1,500 MiB on the second GPU, in 0.5 s" in apart[0].text
    assert found["plain speed"].text.startswith("100 tok/s")
    assert found["strategies"].text == "plain; not draft (no draft)"
    assert found["exactness"].text == "nothing is computed"
    assert (found["device"].status, found["device"].text) == ("note", "no GPU")
    assert (found["pair"].status, found["pair"].text) == ("note", "It drafts otherwise.")


def test_an_engine_that_cannot_load_is_a_problem_and_a_missing_download_is_not() -> None:
    port = FakeEngine()
    port.fail_load("model", "It is broken.")
    assert engine(port, PAIR, shown, lambda: False) == [Finding("engine", "problem", "It is broken.")]
    port.fail_load("download", "No network.")
    (finding,) = engine(port, PAIR, shown, lambda: False)
    assert finding.status == "note"
    assert '"mine"' in finding.text


def test_waiting_for_the_engine_can_be_stopped() -> None:
    with pytest.raises(Stopped):
        engine(FakeEngine(), PAIR, shown, lambda: True)


def test_what_rests_on_a_gpu_is_told_with_the_command_that_tries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpu.json"))
    assert gpu.resting() == []
    record, older = GpuRecord.of("RTX 4060\na driver"), GpuRecord.of("RTX 4060\nan older one")
    older.keep("kernels", "of another driver")
    record.fail("kernels", "CUDA error: unspecified launch failure", "mine")
    assert gpu.resting() == [], "it is tried once more"
    record.fail("kernels", "CUDA error: unspecified launch failure", "mine")
    (found,) = gpu.resting()
    assert found.text == (
        "RTX 4060: specchat's own kernels are not used for mine after a fault (CUDA error: unspecified launch "
        f"failure). {UNTIL}"
    )
    record.keep("kernels", "rows: off by 2")
    assert gpu.resting()[-1].text == (
        f"RTX 4060: specchat's own kernels are not used after a fault (rows: off by 2). {REPORT}"
    )
