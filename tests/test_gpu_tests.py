"""How tests are run on machines with and without a GPU."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import DRIVERS, GPU_TEST_S, gpu_at_hand, pytest_collection_modifyitems

NOWHERE = Path("/nowhere")


@pytest.mark.parametrize(
    ("environ", "torch", "there", "found"),
    [
        ({}, "2.13.0+cu130", True, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "2.13.0", True, True),
        ({"CUDA_VISIBLE_DEVICES": ""}, "2.13.0+cu130", True, False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "2.13.0+cu130", True, False),
        ({}, "2.13.0+cpu", True, False),
        ({}, "2.13.0+cu130", False, False),
    ],
)
def test_kernels_are_interpreted_where_no_gpu_will_be_found(
    environ: dict[str, str], torch: str, there: bool, found: bool, tmp_path: Path
) -> None:
    assert gpu_at_hand(environ, torch, (NOWHERE, tmp_path if there else NOWHERE)) == found


def test_wsl2_is_looked_at_where_windows_puts_its_driver() -> None:
    assert Path("/usr/lib/wsl/lib/libcuda.so.1") in DRIVERS


class Item:
    """A collected test with markers."""

    nodeid = "tests/x.py::test"

    def __init__(self, *markers: pytest.MarkDecorator) -> None:
        self.markers = list(markers)

    def get_closest_marker(self, name: str) -> pytest.MarkDecorator | None:
        return next((marker for marker in self.markers if marker.name == name), None)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker)

    def arguments(self) -> dict[str, object]:
        return {marker.name: marker.args[0] for marker in self.markers if marker.args}


def collected(*markers: pytest.MarkDecorator) -> SimpleNamespace:
    item = Item(*markers)
    pytest_collection_modifyitems([item])  # type: ignore[list-item]
    made = item.arguments()
    return SimpleNamespace(timeout=made.get("timeout"), group=made["xdist_group"])


def test_tests_on_a_gpu_have_time_to_compile_and_the_gpu_to_themselves() -> None:
    assert collected(pytest.mark.gpu) == SimpleNamespace(timeout=GPU_TEST_S, group="gpu")
    assert collected(pytest.mark.gpu, pytest.mark.timeout(5)).timeout == 5
    assert collected(pytest.mark.timed) == SimpleNamespace(timeout=None, group="timed")
    assert collected() == SimpleNamespace(timeout=None, group="tests/x.py")
