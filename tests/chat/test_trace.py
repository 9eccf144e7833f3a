"""A reply's steps as columns, and columns that are none."""

import copy
import time
from dataclasses import fields, replace
from typing import Any

import pytest

from specchat.chat.record import Record
from specchat.chat.trace import _ELSEWHERE as ELSEWHERE
from specchat.chat.trace import _SEVERAL as SEVERAL
from specchat.chat.trace import columns, pack, record_of, unpack
from specchat.engine.protocol.events import Changed, PlainKnown, Step
from specchat.engine.protocol.options import Speculation
from tests.fake_steps import steps


def a_record(words: int = 40, candidates: int = 1) -> Record:
    record, offset = Record(Speculation.of("draft")), 0
    made = steps("Once there was a fox. " * words, strategy="draft", length=5 * candidates, candidates=candidates)
    for number, step in enumerate(made):
        if number == 3:
            record.change(Changed(0, Speculation.of("lookup"), record.tally.tokens), offset)
        record.add(step, offset)
        offset += sum(len(piece.text) for piece in step.pieces)
    return record


def test_a_record_comes_back() -> None:
    record = a_record()
    assert any(step.drafts for step in record.steps)
    assert record_of(unpack(pack(columns(record)))) == record
    empty = Record(Speculation.of("plain"))
    assert record_of(unpack(pack(columns(empty)))) == empty


def test_what_was_measured_after_a_reply_comes_back() -> None:
    record = a_record()
    known = (PlainKnown("draft", 4.0, 0.05), PlainKnown("lookup", 9.0, 0.01))
    written = sum(len(piece.text) for step in record.steps for piece in step.pieces)
    record.add(replace(record.steps[-1], plain_known=known), written)
    assert record_of(unpack(pack(columns(record)))) == record
    assert "plain_known" not in columns(a_record())["steps"]


def test_a_record_from_before_a_field_was_there_comes_back_without_it() -> None:
    record = a_record()
    data = columns(record)
    for name in ("plain_error", "waited_ms"):
        del data["steps"][name]
    assert record_of(data).steps == [replace(step, plain_error=0.0, waited_ms=0.0) for step in record.steps]


def test_all_that_a_step_can_hold_is_recorded_or_said_to_be_elsewhere() -> None:
    lists = {field.name for field in fields(Step) if field.default == ()}
    assert lists == {name for name in SEVERAL if name != "pieces"} | (ELSEWHERE - {"id", "together"})


def test_trees_come_back_and_chains_are_kept_as_before_there_were_any() -> None:
    tree = a_record(candidates=3)
    assert {draft.parent for step in tree.steps for draft in step.drafts} > {-1, 0}
    assert record_of(unpack(pack(columns(tree)))) == tree
    assert set(columns(a_record())["steps"]["drafts"]) == {"in_step", "text", "probability"}


@pytest.mark.parametrize("parent", [-2, 99, "none"])
def test_drafts_that_follow_none_before_them_are_refused(parent: Any) -> None:
    data = columns(a_record(candidates=2))
    data["steps"]["drafts"]["parent"][0] = parent
    with pytest.raises(ValueError, match=r"recorded reply|validation error"):
        record_of(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda steps: steps.pop("accepted"),
        lambda steps: steps["accepted"].pop(),
        lambda steps: steps.update(accepted=["many"] * len(steps["accepted"])),
        lambda steps: steps.update(accepted=[-1] * len(steps["accepted"])),
        lambda steps: steps.update(mood=steps["accepted"]),
        lambda steps: steps["pieces"].pop("text"),
        lambda steps: steps["pieces"].pop("in_step"),
        lambda steps: steps["pieces"]["in_step"].append(1),
        lambda steps: steps["pieces"]["in_step"].__setitem__(0, -1),
        lambda steps: steps.update(pieces=[]),
        lambda steps: steps["drafts"]["text"].pop(),
    ],
)
def test_other_columns_are_refused(spoil: Any) -> None:
    data = copy.deepcopy(columns(a_record()))
    spoil(data["steps"])
    with pytest.raises(ValueError, match=r"recorded reply|validation error"):
        record_of(data)


def test_a_long_record_is_read_in_a_moment() -> None:
    blob = pack(columns(a_record(16_000)))
    begun = time.process_time()
    record = record_of(unpack(blob))
    assert record.tally.tokens > 80_000
    assert time.process_time() - begun < 10.0
