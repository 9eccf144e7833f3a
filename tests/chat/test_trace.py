"""A reply's steps as columns, and columns that are none."""

import copy
import time
from typing import Any

import pytest

from specchat.chat.record import Record
from specchat.chat.trace import columns, pack, record_of, unpack
from specchat.engine.api import Changed, Speculation
from specchat.engine.fake_steps import steps


def a_record(words: int = 40) -> Record:
    record, offset = Record(Speculation.of("draft")), 0
    for number, step in enumerate(steps("Once there was a fox. " * words, strategy="draft", length=5)):
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
    assert time.process_time() - begun < 3.0
