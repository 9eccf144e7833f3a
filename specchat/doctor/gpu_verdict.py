"""The verdict of all checks on a card. Later loads go by it."""

from collections.abc import Iterable

from specchat.doctor.gpu_checks import GpuCheck
from specchat.doctor.gpu_report import GpuReport, Outcome
from specchat.engine.hardware.gpu_failure import MESSAGES
from specchat.engine.hardware.gpu_record import GpuRecord


def remember(checks: Iterable[GpuCheck], report: GpuReport) -> None:
    """Keep what is wrong with the kernels on the card that was found, or that every check which judges them passed.

    A check that failed or did not end counts as a failure, which may pass. Where one did not run or had too little
    memory, and nothing is wrong, what was known before stays.
    """
    if report.known_by is None:
        return
    record = GpuRecord.of(report.known_by)
    outcomes = {check: report.outcomes[check.name] for check in checks}
    faults = [(o.state, f"{check.name}: {o.words}") for check, o in outcomes.items() if _faulty(check, o)]
    wrong = [words for state, words in faults if state == "wrong"]
    judged = [outcome.state for check, outcome in outcomes.items() if check.judges]
    if wrong:
        record.keep("kernels", wrong[0])
    elif faults:
        record.fail("kernels", faults[0][1])
    elif judged and all(state == "passed" for state in judged):
        record.forget("transformers")
        record.forget("kernels")
        record.keep("kernels", "")


def _faulty(check: GpuCheck, outcome: Outcome) -> bool:
    """True if the card is at fault. A CUDA error proves it in any check."""
    if outcome.state == "failed" and any(saying in outcome.words for saying in MESSAGES):
        return True
    return check.judges and outcome.state in ("wrong", "failed", "out of time")
