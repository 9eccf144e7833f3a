"""A reply's steps as columns, and columns that are none."""

import copy
import time
from dataclasses import replace
from typing import Any

import pytest

from specchat.chat.record import Record
from specchat.chat.trace import columns, pack, record_of, unpack
from specchat.engine.events import Changed, PlainKnown
from specchat.engine.fake_steps import steps
from specchat.engine.options import Speculation


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
    """With no call beside it, and left out where there is neither, as before there was such a thing."""
    record = a_record()
    assert "plain_known" not in columns(record)["steps"]
    *_, last = record.steps
    record.add(replace(last, plain_known=(PlainKnown("draft", 1.5, 0.05), PlainKnown("lookup", 2.0, 0.04))), 0)
    assert record_of(unpack(pack(columns(record)))).steps == record.steps
    assert record_of(unpack(pack(columns(record)))).tally.compared.plain_ms == record.tally.compared.plain_ms


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
