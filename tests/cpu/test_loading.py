"""What is told, and what is planned, while a pair is loaded for the processor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specchat.engine.cpu import compiled
from specchat.engine.loading import load, placing
from specchat.engine.memory.devices import Placement, place
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from tests.engine.tiny import checkpoint, on_cpu, perturbed


@pytest.fixture
def pair(tmp_path: Path) -> PairSpec:
    target = checkpoint(tmp_path / "t")
    return PairSpec("t", "T", on_cpu(target), on_cpu(perturbed(tmp_path / "d", target, 0.05)))


def test_compiling_is_told_when_it_begins_and_reading_when_it_goes_on(
    pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def compiling(told: Callable[[float], None]) -> Iterator[None]:
        told(0.0)
        told(0.001)
        yield

    monkeypatch.setattr(compiled, "reporting", compiling)
    said: list[Loading] = []
    load(pair, said.append)
    words = [loading.what.partition(" ")[0] for loading in said]
    assert words == ["reading", "compiling", "reading", "compiling", "reading", "measuring"]
    parts = [loading.fraction or 0 for loading in said]
    assert parts == sorted(parts)


def test_nothing_of_compiling_is_told_where_all_is_there(pair: PairSpec) -> None:
    load(pair, lambda _: None)
    said: list[Loading] = []
    load(pair, said.append)
    assert not any(loading.what.startswith("compiling") for loading in said)


def test_where_nothing_can_be_compiled_the_pair_is_placed_by_the_references_needs(
    pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Placement] = []

    def placed(*arguments: object, **options: object) -> Placement:
        plans.append(place(*arguments, **options))  # type: ignore[arg-type]
        return plans[-1]

    monkeypatch.setattr(placing, "place", placed)
    monkeypatch.setattr(compiled, "unavailable", lambda *_: "numba is broken")
    session = load(pair, lambda _: None)
    assert "alone" in session.info.notes.exactness
    assert [one.plan.target.compiled for one in plans] == [True, False]
