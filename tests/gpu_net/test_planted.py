"""Every fault planted for a net to find, but what kernels lose (`test_kernels.NOTICED`); ceilings have theirs here."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu_net import test_addresses, test_fake_cuda, test_poison, test_sanitiser
from tests.kernels import cases_planted, compiled
from tests.kernels.compiled import Report, check_limits, check_loop

LOOPS = "tests.kernels.cases_planted:LOOPS"


@pytest.fixture(scope="module")
def loops() -> dict[str, Report]:
    return {report.name: report for report in compiled.reports(LOOPS, (120,))}


def check(report: Report) -> None:
    """Hold a loop to what the sound one asks for."""
    check_limits(report, 64, 0)
    check_loop(report, 2.3, 0, 0)


@pytest.mark.parametrize("fault", ["a barrier", "shared memory", "instructions", "registers"])
def test_a_loop_that_asks_for_more_passes_its_ceiling(fault: str, loops: dict[str, Report]) -> None:
    check(loops["nothing"])
    with pytest.raises(AssertionError):
        check(loops[fault])


def ran(test: Callable[..., Any]) -> list[str]:
    """The faults that a test is run with, as their tables name them."""
    (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")  # type: ignore[attr-defined]
    return [one.id if hasattr(one, "id") else one for one in mark.args[1]]


def test_every_planted_fault_is_found_by_its_net() -> None:
    """A fault that is taken out is taken out of this list too."""
    assert ran(test_sanitiser.test_a_planted_fault_is_found_and_none_where_none_is) == [
        "out of bounds",
        "out of bounds, without a mask",
        "out of bounds, before the start",
        "out of bounds, by 32 bits",
        "wild pointer",
        "misaligned",
        "two programs write one address",
        "two programs write one address, in part",
        "a program reads what another writes",
        "read after write without a barrier",
        "read after write without a barrier, of one number",
        "write after read without a barrier",
        "write after write without a barrier",
        "lanes store different values at one address",
    ]
    assert ran(test_poison.test_a_stale_dependency_is_found) == [
        "activations",
        "partial sums",
        "later positions of the cache",
        "scores of a draft",
        "what is chosen",
    ]
    assert ran(test_fake_cuda.test_what_a_capture_forbids_is_found) == [
        "a value is asked for",
        "all values are asked for",
        "places are asked for",
        "to pageable memory",
        "a blocking copy to the host",
        "values of the host",
        "a copy that casts",
        "memory that outlives it",
        "a number of the host",
        "two GPUs in one operation",
        "work of another GPU",
        "an event",
        "a kernel of another GPU",
        "a kernel of main memory",
    ]
    assert ran(test_fake_cuda.test_what_the_host_does_too_early_is_found) == [
        "from pageable memory",
        "pinned memory is read too early",
        "a list of it is made too early",
        "pinned memory is used again too early",
        "a launch with another GPU as the current one",
    ]
    assert ran(test_addresses.test_a_planted_fault_is_found) == [
        "an element too far",
        "an element before",
        "a result that is too short",
        "a mask that is missing",
        "a place that is read",
        "half a pair",
        "a pointer from nowhere",
        "32 bits",
    ]
    assert ran(test_addresses.test_programs_that_get_in_each_others_way_are_found) == [
        "blocks that overlap",
        "rows that overlap",
        "an axis that is left out",
        "half a pair that another writes",
        "the next one's block",
        "one element of the next one's block",
    ]
    assert [case.name for case in cases_planted.LOOPS] == [
        "nothing",
        *ran(test_a_loop_that_asks_for_more_passes_its_ceiling),
    ]
