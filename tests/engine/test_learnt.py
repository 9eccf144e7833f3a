"""What `auto` learnt, kept from load to load."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.engine.bandit import learnt
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.learnt import MAX_PAIRS, Learnt
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.drafters.parts import Fences
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from tests.engine.test_auto import Simulation, World

PAIR = PairSpec("p", "P", ModelSource(path="target"), ModelSource(path="draft"), heads={"eagle": ModelSource(path="e")})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "learnt.json"


def settled(agrees: float) -> AutoDrafter:
    """`auto` that has seen how often drafts of a model stay."""
    simulation = Simulation(World(agrees=agrees))
    simulation.speed(400)
    return simulation.auto


def fresh() -> AutoDrafter:
    return Simulation(World()).auto


def known(auto: AutoDrafter) -> tuple[float, float]:
    auto.forget()
    accepted, drafted = auto._arms["draft"].lengths(0)
    return accepted / drafted, auto._arms["draft"].known


def test_what_was_learnt_is_there_at_the_next_load(path: Path) -> None:
    told, next_one = settled(0.3), fresh()
    Learnt(path, PAIR, "cpu").keep(told)
    Learnt(path, PAIR, "cpu").restore(next_one)
    assert known(next_one) == pytest.approx(known(told))
    assert known(next_one)[0] < known(fresh())[0]


@pytest.mark.parametrize(
    ("pair", "device"),
    [
        (replace(PAIR, target=ModelSource(path="other")), "cpu"),
        (replace(PAIR, draft=ModelSource(path="other")), "cpu"),
        (PAIR, "cuda"),
    ],
)
def test_another_pair_or_device_begins_anew(path: Path, pair: PairSpec, device: str) -> None:
    Learnt(path, PAIR, "cpu").keep(settled(0.3))
    other = fresh()
    Learnt(path, pair, device).restore(other)
    assert known(other) == known(fresh())


def test_new_heads_leave_what_is_known_of_the_draft(path: Path) -> None:
    told, other = settled(0.3), fresh()
    Learnt(path, PAIR, "cpu").keep(told)
    Learnt(path, replace(PAIR, heads={"eagle": ModelSource(path="new")}), "cpu").restore(other)
    assert known(other) == pytest.approx(known(told))


def test_a_model_that_was_written_anew_is_another_one(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    folder.mkdir()
    pair = replace(PAIR, draft=ModelSource(path=str(folder)))
    Learnt(path, pair, "cpu").keep(settled(0.3))
    (folder / "model.safetensors").write_bytes(b"trained on")
    other = fresh()
    Learnt(path, pair, "cpu").restore(other)
    assert known(other) == known(fresh())


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2, "pairs": {}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b" " * (learnt.MAX_BYTES + 1),
        json.dumps({"version": 1, "pairs": {str(n): {"families": {}} for n in range(MAX_PAIRS + 1)}}).encode(),
    ],
)
def test_a_damaged_file_is_as_good_as_none_and_is_written_anew(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    other = fresh()
    Learnt(path, PAIR, "cpu").restore(other)
    assert known(other) == known(fresh())
    Learnt(path, PAIR, "cpu").keep(settled(0.3))
    Learnt(path, PAIR, "cpu").restore(other)
    assert known(other) != known(fresh())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "1e7", '"x"', "null"])
def test_numbers_that_nothing_counted_are_refused(path: Path, value: str) -> None:
    Learnt(path, PAIR, "cpu").keep(settled(0.3))
    data = json.loads(path.read_text())
    (pair,) = data["pairs"].values()
    next(iter(pair["families"].values()))["kept"][0][0] = "HERE"
    path.write_text(json.dumps(data).replace('"HERE"', value))
    other = fresh()
    Learnt(path, PAIR, "cpu").restore(other)
    assert known(other) == known(fresh())


def test_whatever_is_taken_promises_no_more_than_a_draft_can_keep() -> None:
    auto = fresh()
    auto.restore({"draft": (9, [(1e6, 0.0)] * 8, [(1e6, 1e6)] * 8), "unknown": (1, [], [])})
    accepted, drafted = auto._arms["draft"].lengths(0)
    assert 0 <= accepted <= MAX_DRAFT_LENGTH
    assert 0 <= drafted <= MAX_DRAFT_LENGTH


def test_pairs_that_were_not_used_for_long_go(path: Path) -> None:
    auto = settled(0.3)
    for number in range(MAX_PAIRS + 2):
        Learnt(path, PAIR, f"device {number}").keep(auto)
    assert len(json.loads(path.read_text())["pairs"]) == MAX_PAIRS
    first, last = fresh(), fresh()
    Learnt(path, PAIR, "device 0").restore(first)
    Learnt(path, PAIR, f"device {MAX_PAIRS + 1}").restore(last)
    assert known(first) == known(fresh())
    assert known(last) != known(fresh())


def test_it_is_written_seldom_and_for_this_user_only(path: Path) -> None:
    kept, auto = Learnt(path, PAIR, "cpu"), settled(0.3)
    kept.keep(auto)
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()
    kept.keep(auto)
    assert not path.exists()


def test_without_a_file_or_where_none_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for named in (None, tmp_path / "file" / "learnt.json"):
        one = Learnt(named, PAIR, "cpu")
        one.keep(settled(0.3))
        one.restore(fresh())
        one.restore(None)
    assert Learnt.of(PAIR, "cpu", {})._path is None
    assert Learnt.of(PAIR, "cpu", {learnt.VARIABLE: "there"})._path == Path("there")


def test_models_without_any_drafter_are_left_out() -> None:
    costs = StepCosts()
    bare = AutoDrafter([], None, [], {}, costs, Fences())
    assert bare.learnt() == {}
