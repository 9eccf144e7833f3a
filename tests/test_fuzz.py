"""A small slice of what `python -m tests.fuzzing` does; the same files each time."""

from pathlib import Path

from tests.fuzzing import KINDS, fuzz

FILES, SEED = 80, 4


def test_damaged_files_are_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    report = fuzz(FILES, SEED, tmp_path)
    assert not report.faults, report.faults[0]
    assert sum(report.refused.values()) > FILES / 2
    assert set(report.refused) == set(KINDS)
