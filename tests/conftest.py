"""What holds for every test: where kernels run, how long tests may take, and how workers share them."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/libcuda.so.1"))
"""What shows an NVIDIA driver, of Linux itself and of Windows below WSL2."""
GPU_TEST_S = 1800
"""Seconds that a test on a GPU may take: the first one compiles every kernel."""


def gpu_at_hand(environ: Mapping[str, str], torch: str, drivers: tuple[Path, ...] = DRIVERS) -> bool:
    """Whether this version of torch will find a GPU, told without the seconds that importing it takes."""
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and not torch.endswith("+cpu") and any(driver.exists() for driver in drivers)


# Triton's decorator decides at import.
if not gpu_at_hand(os.environ, version("torch")):
    os.environ["TRITON_INTERPRET"] = "1"

# Else every process of the tests compiles for seconds.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))

# Processes that each multiply with every core hold each other up at every product.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker takes a whole file, whose fixtures it makes once; tests that measure time go one after another.

    So do tests on a GPU, which has the memory for one of them.
    """
    for item in items:
        if item.get_closest_marker("gpu") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(GPU_TEST_S))
        if item.get_closest_marker("xdist_group") is None:
            alone = next((name for name in ("gpu", "timed") if item.get_closest_marker(name) is not None), None)
            item.add_marker(pytest.mark.xdist_group(alone or item.nodeid.partition("::")[0]))
