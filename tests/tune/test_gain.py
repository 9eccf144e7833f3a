"""Speeds of drafts from samples that are given: the times over plain, and a text that differs."""

from collections.abc import Iterator

import pytest

from specchat.bench.contender import BenchPrompt, Different, Run
from specchat.bench.interleaved import Sample
from specchat.bench.ratios import ratio_interval
from specchat.engine.events import Stats
from specchat.engine.options import Sampling, Speculation
from specchat.engine.session import Session
from specchat.tune import gain
from specchat.tune.gain import draft_speeds
from specchat.tune.replies import questions
from tests.tune.conftest import CHATS

MS = {"plain": 40.0, "draft 1": 20.0, "draft 2": 10.0}


def given(monkeypatch: pytest.MonkeyPatch, text_of: dict[str, tuple[int, ...]]) -> None:
    def measured(contenders, prompts, *_):  # type: ignore[no-untyped-def]
        def samples() -> Iterator[Sample]:
            for prompt in prompts:
                for one in contenders:
                    stats = Stats(draft_ms=0.0, verify_ms=MS[one.name], other_ms=0.0, waited_ms=500.0)
                    yield Sample(one.name, prompt, 0, Run(text_of.get(one.name, (1, 2)), 9.0, 0.1, 1, stats))

        return samples()

    monkeypatch.setattr(gain, "measure", measured)
    monkeypatch.setattr(gain, "held_out_prompts", lambda *_: [BenchPrompt(str(n), "", (), ()) for n in range(3)])


def test_times_are_those_of_steps_over_plain(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {})
    _, judged = questions(CHATS, Sampling(), 1)
    before, after = draft_speeds([session, session], Speculation.of("draft", 4), judged, lambda _: None)
    assert (before.times, after.times) == (dict.fromkeys("012", 2.0), dict.fromkeys("012", 4.0))
    assert (before.tokens_per_second, after.tokens_per_second) == (pytest.approx(100.0), pytest.approx(200.0))


def test_a_text_that_differs_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"draft 2": (1, 3)})
    with pytest.raises(Different, match="draft"):
        draft_speeds([session, session], Speculation.of("draft", 4), [], lambda _: None)


def test_an_interval_of_ratios() -> None:
    mean, low, high = ratio_interval([0.0, 0.2])
    assert mean == pytest.approx(1.10517, abs=1e-5)
    assert (low, high) == (pytest.approx(0.90847, abs=1e-4), pytest.approx(1.34447, abs=1e-4))
