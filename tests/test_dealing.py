"""Which tests a worker takes, and when."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock, Timeout
from hypothesis import HealthCheck, settings

from tests.conftest import LONG, compile_alone, in_turn, pytest_collection_modifyitems, pytest_xdist_auto_num_workers
from tests.test_gpu_tests import Item

ROOT = Path(__file__).parents[1]


def test_files_that_take_long_are_there() -> None:
    assert [name for name in LONG if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(("cores", "workers"), [(1, None), (2, 3), (3, 4), (4, None)])
def test_few_cores_have_a_worker_more(cores: int, workers: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert pytest_xdist_auto_num_workers() == workers
    monkeypatch.setenv("PYTEST_XDIST_AUTO_NUM_WORKERS", "2")
    assert pytest_xdist_auto_num_workers() is None


def test_no_example_has_to_be_quick() -> None:
    """Nor by chance another one than in the last run, unless asked for."""
    for profile, same in (("same", True), ("explore", False)):
        found = settings.get_profile(profile)
        assert (found.deadline, found.derandomize) == (None, same)
        assert HealthCheck.too_slow in found.suppress_health_check
    assert settings.default is not None
    assert settings.default.deadline is None


def test_each_value_of_a_parameter_has_its_turn_beside_others() -> None:
    cases = list(product("abc", "xy"))
    assert [case for case, turn in zip(cases, in_turn(cases, 2), strict=True) if turn] == [
        *zip("abc", "xyx", strict=True)
    ]
    found = [in_turn(cases, 3, first) for first in range(3)]
    assert [sum(turns) for turns in zip(*found, strict=True)] == [1] * len(cases)


def item(nodeid: str, *markers: pytest.MarkDecorator) -> Item:
    made = Item(*markers)
    made.nodeid = nodeid
    return made


def test_what_takes_long_comes_first_then_files_of_most_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    one, many, last = ["tests/a.py::test"], ["tests/b.py::one", "tests/b.py::two"], [f"{LONG[-1]}::test"]
    items = [item(nodeid) for nodeid in (*one, *many, *last)]
    items.insert(2, item("tests/b.py::timed", pytest.mark.timed))
    in_files = [item.nodeid for item in items]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == in_files
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == [*last, *many, *one, "tests/b.py::timed"]


def test_one_worker_compiles_a_function_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is compiled for what it compiles; the next one after an error; and another function meanwhile."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def function(name: str | None) -> Any:
        return SimpleNamespace(_cache=SimpleNamespace(cache_path=name, _impl=SimpleNamespace(filename_base=name)))

    def is_free(name: str) -> bool:
        try:
            with FileLock(tmp_path / "locks" / name, timeout=0):
                return True
        except Timeout:
            return False

    def compiles(_: Any, depth: int) -> None:
        held.append([name for name in ("outer", "inner", "other") if not is_free(name)])
        if not depth:
            raise ValueError("no such type")
        for name in ("inner", "outer", None):
            with pytest.raises(ValueError, match="no such type"):
                alone(function(name), depth - 1)

    held = list[list[str]]()
    alone = compile_alone(compiles)
    alone(function("outer"), 1)
    assert held == [["outer"], ["outer", "inner"], ["outer"], ["outer"]]
    assert all(map(is_free, ("outer", "inner")))
