"""A measurement during which the program was stopped is taken again."""

import os
import signal

import pytest

from specchat.bench.interleaved import Stops

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGCONT"), reason="no process can be stopped here")


def test_a_measurement_is_taken_again_until_nothing_stops_it() -> None:
    stops, taken = Stops(), []

    def measure() -> int:
        taken.append(len(taken))
        if len(taken) < 3:
            os.kill(os.getpid(), signal.SIGCONT)  # as after a stop
        return len(taken)

    with stops.counting():
        assert stops.undisturbed(measure) == 3
        assert stops.undisturbed(measure) == 4
    assert stops.count == 2


def test_signals_outside_the_block_count_for_nothing() -> None:
    stops = Stops()
    with stops.counting():
        pass
    os.kill(os.getpid(), signal.SIGCONT)
    assert stops.count == 0
