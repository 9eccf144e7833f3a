"""Runs the checks of the GPU path one after the other, and writes what came of them into one zip after each."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from specchat.clean import clean, one_line
from specchat.doctor import child
from specchat.doctor.gpu_checks import ENVIRONMENT, GpuCheck
from specchat.doctor.versions import NEEDED, SOMETIMES, commit, installed
from specchat.engine.gpu_checks import NO_MEMORY, ROWS, UNAVAILABLE, WRONG, WRONGS
from specchat.engine.hardware.gpu_failure import MESSAGES

State = Literal["passed", "wrong", "failed", "out of time", "no memory", "not run"]
BAD: tuple[State, ...] = ("wrong", "failed", "out of time", "no memory")
RUN = "specchat.engine.gpu_checks.run"
SMI_S = 20.0
WORDS = 300
"""Characters of an error that a line has."""
LOG_LINES = 200
"""Last lines of the engine's log that are looked through for an error of the GPU."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a check. `words` say what is wrong or why it did not run; `rows` are its figures."""

    state: State
    seconds: float = 0.0
    words: str = ""
    rows: Sequence[Mapping[str, Any]] = ()
    log: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Whatever else it left, by name."""


class GpuReport:
    """The zip at `path`, whole at any time."""

    def __init__(self, path: Path, engine_log: Path | None = None) -> None:
        """`engine_log` is searched for the last error of the GPU.

        Raises:
            OSError: the file cannot be written.
        """
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.sentence = "The checks were not finished."
        self._about = {
            "specchat": installed("specchat") or "",
            "commit": commit(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: installed(name) for name in (*NEEDED, *SOMETIMES)},
        }
        self._smi = _smi()
        self._engine_error = "" if engine_log is None else _last_error(engine_log)
        self._write()

    @property
    def gpu(self) -> str | None:
        """The GPU that is used; None where there is none or the environment is not known."""
        return self._environment.get("gpu")

    @property
    def without(self) -> str:
        """Why no GPU is used, in words; empty where one is, or where that is not known."""
        return str(self._environment.get("none", ""))

    @property
    def bad(self) -> list[str]:
        """The checks that went wrong; where a GPU was found, also those that found none."""
        bad = (*BAD, "not run") if self.gpu else BAD
        return [name for name, outcome in self.outcomes.items() if outcome.state in bad]

    def add(self, name: str, outcome: Outcome) -> None:
        """Take a check's outcome in and write the zip anew."""
        self.outcomes[name] = outcome
        self._write()

    def finish(self) -> str:
        """The sentence at the end: what was found and what to send."""
        count, bad = len(self.outcomes), self.bad
        ran = count if self.gpu else sum(outcome.state != "not run" for outcome in self.outcomes.values())
        where = f"on {self.gpu}" if self.gpu else "without a GPU"
        if bad:
            self.sentence = (
                f"{len(bad)} of {ran} checks went wrong {where}: {', '.join(bad)}. Attach {self.path} to your report."
            )
        elif self.gpu:
            self.sentence = (
                f"All {ran} checks passed {where}. Nothing needs to be sent; the figures are in {self.path}."
            )
        else:
            self.sentence = (
                f"specchat's own kernels run on no GPU here: {self.without or 'none is known'}. {ran} checks passed "
                f"without one, and {count - ran} were not run. If they should run on one, attach {self.path} to your "
                "report."
            )
        self.sentence += "".join(map(_unchecked, self._cards[0]))
        self._write()
        return self.sentence

    def summary(self) -> dict[str, Any]:
        """All but logs and files, as JSON has it."""
        checks = {
            name: {key: value for key, value in asdict(outcome).items() if key not in ("log", "files")}
            for name, outcome in self.outcomes.items()
        }
        return {**self._about, "sentence": self.sentence, "last CUDA error": self._last_cuda_error(), "checks": checks}

    @property
    def known_by(self) -> str | None:
        """The words that identify the GPU in use in `GpuRecord`."""
        return self._environment.get("known by")

    @property
    def only(self) -> dict[str, str]:
        """The variable that shows a process the GPU that is used alone; empty where there is no other."""
        others, used = self._cards
        uuids = [card.get("uuid") for card in used]
        # A part of a GPU (MIG) is the only one that a process sees, and goes by another name.
        return {"CUDA_VISIBLE_DEVICES": f"GPU-{uuids[0]}"} if others and any(uuids) else {}

    @property
    def _cards(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The GPUs that are not used and the one that is; none where none is used."""
        _, *cards = self.outcomes[ENVIRONMENT.name].rows if self.gpu else [{}]
        own = self._environment.get("index")
        return [one for one in cards if one.get("index") != own], [one for one in cards if one.get("index") == own]

    @property
    def _environment(self) -> Mapping[str, Any]:
        outcome = self.outcomes.get(ENVIRONMENT.name)
        return outcome.rows[0] if outcome is not None and outcome.rows else {}

    def _last_cuda_error(self) -> str:
        logs = {"the engine's log": self._engine_error} | {name: o.log for name, o in self.outcomes.items()}
        found = [
            f"{name}: {one_line(line, WORDS)}"
            for name, log in logs.items()
            for line in log.splitlines()
            if any(saying in line for saying in MESSAGES)
        ]
        return found[-1] if found else ""

    def _write(self) -> None:
        folder = self.path.parent
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{self.path.name}.", delete=False) as file:
            try:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
                    made.writestr("report.json", json.dumps(self.summary(), indent=1) + "\n")
                    made.writestr("nvidia-smi.txt", self._smi)
                    if self._engine_error:
                        made.writestr("engine.log", self._engine_error)
                    for name, outcome in self.outcomes.items():
                        made.writestr(f"{name}/log.txt", outcome.log)
                        made.writestr(f"{name}/rows.json", json.dumps(list(outcome.rows), indent=1) + "\n")
                        for other, content in outcome.files.items():
                            made.writestr(f"{name}/{other}", content)
                file.close()
                os.replace(file.name, self.path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise


def _unchecked(card: Mapping[str, Any]) -> str:
    """A sentence on a GPU that was not checked."""
    called = f"GPU {card.get('index')}"
    if error := card.get("error"):
        return f" {called} was not checked and does not start: {error}."
    command = f"CUDA_VISIBLE_DEVICES=GPU-{card.get('uuid')} specchat doctor --gpu --report other.zip"
    return f' {called} ({card.get("name")}) was not checked: "{command}" does that.'


@dataclass(frozen=True)
class Listener:
    """Follows progress: `begins` gets a check and, first, its number, `ended` a check and how it ended."""

    begins: Callable[[int, GpuCheck], None] = lambda *_: None
    ended: Callable[[GpuCheck, Outcome], None] = lambda *_: None


def run_all(checks: Sequence[GpuCheck], report: GpuReport, demo: Path, listener: Listener) -> None:
    """Run every check, whatever became of those before; `demo` is the folder of the embedded models."""
    with tempfile.TemporaryDirectory(prefix="specchat-gpu-") as folder:
        for number, check in enumerate(checks):
            listener.begins(number, check)
            if reason := _lacking(check, report):
                outcome = Outcome("not run", words=reason)
            else:
                outcome = _outcome(check, demo, Path(folder), report)
            report.add(check.name, outcome)
            listener.ended(check, outcome)


def _lacking(check: GpuCheck, report: GpuReport) -> str:
    """Why a check cannot run here, in words; empty where it can."""
    if find_spec("torch") is None:
        return "torch is not installed"
    if check.needs in ("triton", "kernels") and find_spec("triton") is None:
        return "triton is not installed"
    return "no GPU" if check.needs == "gpu" and report.without else ""


def _outcome(check: GpuCheck, demo: Path, folder: Path, report: GpuReport) -> Outcome:
    """Run one check in a process of its own."""
    out = folder / check.name
    out.mkdir()
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "PYTHONUNBUFFERED": "1", **report.only}
    environment.pop("TRITON_INTERPRET", None)
    if report.without and check.needs == "kernels":
        environment["TRITON_INTERPRET"] = "1"
    # The process finds modules where this one does; -P keeps its current folder out of the search.
    start = f"import sys; sys.path[:] = {sys.path!r}; from {RUN} import main; sys.exit(main(*sys.argv[1:]))"
    log = folder / f"{check.name}.log"
    command = [sys.executable, "-P", "-c", start, check.function, str(out), str(demo), report.gpu or ""]
    try:
        ended = child.run(command, environment, log, check.limit_s)
    except OSError as error:
        return Outcome("failed", words=one_line(str(error), WORDS))
    rows = [row for line in _text(out / ROWS).splitlines() if (row := _parsed(line)) is not None]
    wrong = _parsed(_text(out / WRONGS)) or []
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in (ROWS, WRONGS)}
    state, words = _judged(ended, [str(one) for one in wrong])
    return Outcome(state, ended.seconds, words, rows, ended.output, files)


def _judged(ended: child.ChildExit, wrong: list[str]) -> tuple[State, str]:
    last = one_line((ended.output.splitlines() or ["it wrote nothing"])[-1], WORDS)
    match ended.code:
        case 0:
            return "passed", ""
        case code if code == UNAVAILABLE:
            return "not run", last
        case code if code == WRONG and wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            return "wrong", one_line(wrong[0], WORDS) + more
        case code if code == NO_MEMORY:
            return "no memory", last
        case None:
            return "out of time", f"ended after {ended.seconds:.0f} s; the last line is: {last}"
        case code:
            return "failed", f"exit code {code}: {last}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _parsed(text: str) -> Any:
    """The value of a JSON text; None where the text ends too early, as after a killed process."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _smi() -> str:
    """The output of `nvidia-smi -q`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "no nvidia-smi on PATH\n"
    try:
        done = subprocess.run([program, "-q"], capture_output=True, timeout=SMI_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"nvidia-smi gives no answer: {error}\n"
    return clean((done.stdout + done.stderr).decode("utf-8", "replace"))


def _last_error(log: Path) -> str:
    """The lines of a log up to its last error of the GPU; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 18)))
            lines = clean(file.read().decode("utf-8", "replace")).splitlines()
    except OSError:
        return ""
    places = [index for index, line in enumerate(lines) if any(saying in line for saying in MESSAGES)]
    return "\n".join(lines[max(0, places[-1] - LOG_LINES) : places[-1] + 1]) + "\n" if places else ""
