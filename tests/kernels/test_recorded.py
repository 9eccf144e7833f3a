"""Every kernel that real pairs launch on an RTX 3090, 4090 and 5090 launches there: of what is recorded of each.

Where one is not recorded, as after a change to a kernel, it is compiled by the command that `COMMAND` gives.
"""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.kernels import recorded
from tests.kernels.compiled import SHARED_LIMIT
from tests.kernels.recorded import COMMAND, Figures

SPILLED = 120
"""Bytes that a thread may spill: a product of groups of 64 rows in NF4 with a bias does so on sm_120, others 68."""
ANEW = 2
"""Entries that are compiled anew in each run."""


@cache
def looked(*arguments: str) -> dict[str, Any]:
    """What `tests.kernels.recorded` says of the record."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.recorded", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(name: str, one: Figures) -> None:
    """Assert that a kernel fits a multiprocessor and spills next to nothing."""
    architecture = int(name.split()[0].removeprefix("sm_"))
    assert one.shared <= SHARED_LIMIT[architecture], f"{name}: {one}"
    assert one.registers * one.warps * 32 <= 65_536, f"{name}: {one}"
    assert max(one.stored, one.loaded) <= SPILLED, f"{name}: {one}"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return looked("--look", str(ANEW))


def test_every_kernel_of_a_real_pair_is_recorded(found: dict[str, Any]) -> None:
    told = f"{len(found['missing'])} kernels are not recorded, such as {found['missing'][:3]}. Record them: {COMMAND}"
    assert not found["missing"], told
    assert found["launched"] == len(recorded.read()) > 400, f"something is recorded that nothing launches: {COMMAND}"


def test_what_is_recorded_fits_gpus_for_consumers_and_spills_little() -> None:
    entries = recorded.read()
    assert {name.split()[0] for name in entries} == {"sm_86", "sm_89", "sm_120"}
    for name, one in entries.items():
        check(name, one)


def test_some_of_the_record_is_what_the_compiler_makes(found: dict[str, Any]) -> None:
    entries = recorded.read()
    assert len(found["anew"]) == ANEW
    assert {name: Figures(*one) for name, one in found["anew"].items()} == {n: entries[n] for n in found["anew"]}


@pytest.mark.parametrize(
    "one", [Figures(64, 16, 131_072, 0, 0), Figures(255, 4, 0, 124, 88), Figures(168, 16, 0, 0, 0)]
)
def test_what_does_not_fit_is_told(one: Figures) -> None:
    with pytest.raises(AssertionError, match="sm_89 _route"):
        check("sm_89 _route 0", one)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_kernel_of_every_pair_on_every_card(found: dict[str, Any]) -> None:
    """Compiled anew: those on record as recorded, and those of pairs on other cards within the same limits."""
    entries, anew = recorded.read(), looked("--every", "--look", "-1")["anew"]
    assert len(anew) > found["launched"]
    for name, figures in anew.items():
        check(name, Figures(*figures))
        assert entries.get(name, Figures(*figures)) == Figures(*figures), name
