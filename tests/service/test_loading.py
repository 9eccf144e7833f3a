"""Waiting for a pair: what is shown meanwhile, and how it ends."""

import pytest

from specchat.engine.errors import EngineError
from specchat.service.loading import Stopped, load
from tests.fake import FakeEngine
from tests.service.made import CATALOG, service_of


def test_the_progress_is_shown_until_the_pair_is_loaded() -> None:
    shown: list[tuple[str, float | None]] = []
    service = service_of(engine := FakeEngine())
    engine.start()
    engine.holds_loads = True

    def show(what: str, fraction: float | None) -> None:
        shown.append((what, fraction))
        engine.holds_loads = False
        engine.restart()

    assert load(service, CATALOG.pairs[0], show, lambda: False) is service.loaded.info
    assert shown == [("reading models/demo", 0.1)]


def test_of_a_pair_and_its_fallback_that_both_fail_the_first_reason_counts() -> None:
    service = service_of(engine := FakeEngine(), fallback=CATALOG.pairs[0])
    engine.start()
    engine.fail_load("download", "no connection")
    engine.fail_load("model", "no such folder")
    with pytest.raises(EngineError, match="no connection"):
        load(service, CATALOG.pairs[1], lambda *_: None, lambda: False)


def test_waiting_ends_when_the_user_says_so() -> None:
    service = service_of(engine := FakeEngine())
    engine.start()
    engine.holds_loads = True
    with pytest.raises(Stopped):
        load(service, CATALOG.pairs[0], lambda *_: None, lambda: True)
