"""Imports beside a window: no collection stops it, and all is as before afterwards."""

import gc
import sys

import pytest

from specchat.mcp_tools.importing import uninterrupted


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_meanwhile_and_what_was_made_is_left_out_later(collects: bool) -> None:
    switch, kept = sys.getswitchinterval(), gc.get_freeze_count()
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with uninterrupted():
            assert not gc.isenabled()
            assert sys.getswitchinterval() < switch
            made = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        assert gc.isenabled() is collects
        assert gc.get_freeze_count() >= kept + len(made)
    finally:
        (gc.enable if before else gc.disable)()
        gc.unfreeze()
    assert sys.getswitchinterval() == switch


def test_an_import_that_fails_leaves_everything_as_it_was() -> None:
    switch, collects = sys.getswitchinterval(), gc.isenabled()
    with pytest.raises(ImportError), uninterrupted():
        raise ImportError("broken")
    assert (sys.getswitchinterval(), gc.isenabled()) == (switch, collects)
