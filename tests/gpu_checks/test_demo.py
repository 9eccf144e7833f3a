"""The checks that a GPU alone runs, dry: on the interpreter, with what torch.cuda tells made up."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.bench import prefetch
from specchat.bench.published import Shapes, shaped
from specchat.engine.gpu_checks import demo as checks
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes, Unavailable
from specchat.engine.kernels.ahead import NONE
from specchat.engine.protocol.options import Sampling
from specchat.engine.weights.checkpoint import Checkpoint
from tests.gpu_checks.conftest import HOST

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs them itself")


class Event:
    """A mark in time, a millisecond after the one before."""

    made = 0

    def __init__(self, **_: object) -> None:
        self.at = 0

    def record(self) -> None:
        Event.made += 1
        self.at = Event.made

    def synchronize(self) -> None:
        """All is done."""

    def elapsed_time(self, later: "Event") -> float:
        return float(later.at - self.at)


@pytest.fixture
def notes(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """For a dry run: main memory stands for the GPU, replies are short."""
    monkeypatch.setattr(place, "gpu", lambda: HOST)
    monkeypatch.setattr(checks, "CONTEXT", 64)
    monkeypatch.setattr(checks, "PROMPT", (5, 6, 7, 8))
    monkeypatch.setattr(checks, "TOKENS", 3)
    monkeypatch.setattr(checks, "LENGTHS", (2,))
    monkeypatch.setattr(checks, "SAMPLINGS", {"greedy": Sampling()})
    monkeypatch.setattr(checks.write, "__defaults__", ((5, 6, 7, 8), 3, "coupled"))
    for name, made in {"synchronize": None, "mem_get_info": (60 << 20, 100 << 20), "empty_cache": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda made=made: made)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return Notes(tmp_path, demo)


def test_there_must_be_a_gpu(demo: Path) -> None:
    with pytest.raises(Unavailable, match="no GPU"):
        checks.in_nf4(Notes(None, demo))


def test_the_gpu_against_the_cpu(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    checks.in_bfloat16(notes)
    assert notes.wrong == []
    assert notes.rows[0]["tokens"] == 7
    assert notes.rows[-1]["greedy_tokens"] == 3
    real = checks.logits
    monkeypatch.setattr(checks, "logits", lambda model, text: real(model, [0, *text[1:]]))
    checks.in_bfloat16(notes)
    assert [words.partition(":")[0] for words in notes.wrong] == ["logits, mean", "logits, most"]


def test_a_reply_that_parts_where_nothing_is_near_a_tie(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checks.write
    monkeypatch.setattr(checks, "write", lambda *_: [(token + 1) % 200 for token in real(*_)])
    checks.in_bfloat16(notes)
    assert len(notes.wrong) == 1
    assert notes.wrong[0].startswith("greedy reply: token 0 is another than the CPU's, which is likelier by ")


def test_captured_and_eager(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    checks.captured_and_eager(notes)
    assert notes.wrong == []
    assert {row["strategy"] for row in notes.rows} >= {"plain", "draft", "draft-tree", "lookup"}
    real = checks.write

    def other(pair: Any, strategy: str, *more: Any) -> list[int]:
        made = real(pair, "plain", *more)
        return [*made[:-1], made[-1] + (strategy == "draft")]

    monkeypatch.setattr(checks, "write", other)
    checks.captured_and_eager(notes)
    assert notes.wrong == ["draft of 2 tokens, greedy: token 2 is not the plain one"]


def test_what_steps_cost(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = checks._steps
    monkeypatch.setattr(checks, "_steps", lambda pair, length, _: steps(pair, length, 2) * 6)
    checks.verify_cost(notes)
    assert [row["tokens"] for row in notes.rows] == [1, 2, 4, 8, 16]
    assert notes.rows[0]["in_plain_steps"] == 1.0


def test_memory_and_bandwidth(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "write", lambda *_: [])
    checks.memory(notes)
    assert [row["when"] for row in notes.rows] == ["before", "loaded", "captured", "after a reply", "unloaded"]
    assert all(row["beside"] == row["used"] - row["kept"] for row in notes.rows)
    checks.bandwidth(notes, 1)
    assert [row["gb_a_second"] for row in notes.rows[-3:]] == pytest.approx([2.097152, 1.048576, 1.048576])
    assert notes.wrong == []


def test_prefetches_are_timed_with_and_without(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Shapes("tiny", "T", "D", *(shaped("qwen3", 32, 64, 2, 2, 1, 16, 64, 1024, 1e6, False) for _ in range(2)))
    monkeypatch.setattr(prefetch, "PUBLISHED", dict.fromkeys(prefetch.MODELS, tiny))
    monkeypatch.setattr(prefetch, "whole_memory", lambda _: NONE)
    monkeypatch.setattr(prefetch, "LAYERS", 1)
    monkeypatch.setattr(prefetch, "captured_in_turn", lambda calls: {name: [1.0, 2.0, 3.0] for name in calls})
    prefetch.prefetches(notes)
    told = [(row["model"], row["rows"], row["nothing ahead, us"], row["ratio"]) for row in notes.rows]
    assert told == [(name, rows, 2.0, 1.0) for name in prefetch.MODELS for rows in prefetch.ROWS]


def test_a_trace(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_steps", lambda *_: torch.zeros(2) + 1)
    checks.trace(notes)
    assert notes.out is not None
    assert (notes.out / "trace.json").stat().st_size
    assert notes.wrong == ["the trace has no kernel"], "the device's time is nowhere"


def test_the_embedded_models_are_where_the_checks_look() -> None:
    from specchat.config.paths import demo_model

    for name in ("target", "draft"):
        assert demo_model(name).parent / name == demo_model(name)
        assert Checkpoint.open(demo_model(name)).config.longest >= checks.CONTEXT
