"""NVIDIA GPUs as nvidia-smi lists them, and what Triton needs for them: asking torch would mean loading it."""

import shutil
import subprocess
from pathlib import Path

from specchat.clean import one_line
from specchat.doctor.finding import Finding, note, ok
from specchat.doctor.versions import installed
from specchat.engine.hardware import toolchain
from specchat.engine.hardware.gpu_counters import Counters, CountersError
from specchat.engine.hardware.gpu_failure import REPORT, UNTIL
from specchat.engine.hardware.gpu_record import GpuRecord

QUERY = ("--query-gpu=name,memory.total,memory.free,driver_version,compute_cap,uuid", "--format=csv,noheader")
PATIENCE_S = 5.0
OLDEST = 8.0
"""Compute capability of Ampere."""


def gpus(driver: Path = toolchain.DRIVER) -> list[Finding]:
    """The GPUs that nvidia-smi lists. The file `driver` exists where a driver is loaded."""
    program = shutil.which("nvidia-smi")
    if program is None and driver.exists():
        return [note("gpu", 'no nvidia-smi on PATH, but an NVIDIA driver: "specchat doctor --gpu" looks by torch.')]
    if program is None:
        return [ok("gpu", "none found (no nvidia-smi on PATH): pairs run on the CPU")]
    try:
        result = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        return [note("gpu", f"nvidia-smi gives no answer ({type(error).__name__}): pairs may run on the CPU only.")]
    if result.returncode:
        words = one_line(result.stdout + result.stderr, 160)
        return [note("gpu", f"nvidia-smi fails ({words}): pairs may run on the CPU only.")]
    found = [finding for line in result.stdout.splitlines() if line.strip() for finding in _gpu(line)]
    if not found:
        return [note("gpu", "nvidia-smi lists none: pairs run on the CPU.")]
    return [*found, _builds()] if any(finding.status == "ok" for finding in found) else found


def resting() -> list[Finding]:
    """The ways to run pairs that rest on a GPU after faults."""
    found = list[Finding]()
    for card, way, pair, fault, lasts in GpuRecord.resting():
        what = "specchat's own kernels are" if way == "kernels" else f"{way} is"
        whose = f" for {pair}" if pair else ""
        advice = REPORT if lasts else UNTIL
        found.append(note("gpu faults", f"{card}: {what} not used{whose} after a fault ({fault}). {advice}"))
    return found


def _builds() -> Finding:
    """True if Triton can build its driver module, which it does before its first launch."""
    if missing := toolchain.unsupported():
        return note("gpu tools", f"{missing}: Triton builds its driver with it; until then transformers runs pairs.")
    return ok("gpu tools", f"{toolchain.compiler()}, {toolchain.header()}")


def _gpu(line: str) -> list[Finding]:
    fields = [one_line(field, 60) for field in line.split(",")]
    if len(fields) != 6:
        return [note("gpu", f"nvidia-smi says something unexpected: {one_line(line, 120)}")]
    name, total, free, driver, capability, uuid = fields
    shown = f"{name}, {free} of {total} free, driver {driver}, compute capability {capability}"
    try:
        old = float(capability) < OLDEST
    except ValueError:
        old = False
    if old:
        return [note("gpu", f"{shown}: older than Ampere, so transformers runs pairs on it.")]
    if (installed("torch") or "").endswith("+cpu"):
        return [note("gpu", f"{shown}; but the installed torch is built for the CPU only.")]
    return [ok("gpu", shown), _use(uuid)]


def _use(uuid: str) -> Finding:
    """Figures of a GPU in the app's engine panel."""
    try:
        return ok("gpu use", f"{100 * Counters(uuid).read().busy:.0f} % busy")
    except CountersError as error:
        return note("gpu use", f"its counters cannot be read ({error}): the engine panel does not show how busy it is.")
