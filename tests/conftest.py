"""What holds for every test: where kernels run, and how tests are dealt out to worker processes."""

import os
from pathlib import Path

import pytest

# Triton's decorator decides at import; /proc tells of a driver without the seconds that importing torch takes.
if not Path("/proc/driver/nvidia/version").exists():
    os.environ["TRITON_INTERPRET"] = "1"

# Processes that each multiply with every core hold each other up at every product.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker takes a whole file, whose fixtures it makes once; tests that measure time go one after another."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            timed = item.get_closest_marker("timed") is not None
            item.add_marker(pytest.mark.xdist_group("timed" if timed else item.nodeid.partition("::")[0]))
