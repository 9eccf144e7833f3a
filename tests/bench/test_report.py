"""A measurement as text, JSON and a picture."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.bench.report import BenchReport, write_json, write_plot
from specchat.bench.summary import Spread
from specchat.bench.verify_cost import VerifyCost
from specchat.engine.protocol.stats import Stats
from tests import fake
from tests.bench.samples import STATS, sample


def stats(name: str, tokens: tuple[int, ...]) -> Stats | None:
    """Plain takes a tenth of a second for a token, the draft 0.04; of another program there are none."""
    ms = {"plain": 100.0, "draft x5": 40.0}.get(name)
    drafted = STATS if name == "draft x5" else Stats()
    return None if ms is None else replace(drafted, draft_ms=0.0, other_ms=0.0, verify_ms=ms * len(tokens))


@pytest.fixture
def report() -> BenchReport:
    samples = [
        sample(name, speed, prompt, tokens=tokens, stats=stats(name, tokens), category=category)
        for prompt, category, tokens in (("a", "chat", (5, 6, 7)), ("b", "copy", (8, 9)))
        for name, speed in (("plain", 10.0), ("draft x5", 25.0), ("theirs", 20.0))
    ]
    cost = VerifyCost(1, Spread(2.0, 1.5, 2.5, 9), 1.0)
    others, rivals = frozenset({"theirs"}), {"theirs": "draft x5"}
    return BenchReport(fake.INFO, "a machine", 1, 3, others, rivals, samples, [cost], ["theirs: 2 threads"])


def test_text_says_it_all(report: BenchReport) -> None:
    text = report.text()
    for words in ("a machine", "Fake pair", "draft x5", "2.50", "1.25", "chat", "copy", "2/2", "theirs: 2 threads"):
        assert words in text
    assert text.splitlines()[-1].startswith("What to do here: of these choose draft, ")
    assert report.different == []


def test_a_different_text_of_ours_is_named_and_another_programs_is_not(report: BenchReport) -> None:
    changed = [
        replace(s, run=replace(s.run, tokens=(1, 1))) if s.contender != "plain" and s.prompt.id == "b" else s
        for s in report.samples
    ]
    assert replace(report, samples=changed).different == ["draft x5 on 1 of 2 prompts"]


def test_nothing_measured(report: BenchReport) -> None:
    empty = replace(report, samples=[], verify_cost=[])
    assert "Nothing was measured" in empty.text()
    assert empty.as_json()["contenders"] == []


def test_json_holds_figures_and_replies(report: BenchReport, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write_json(report, path)
    data = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert data["schema"] == 1
    by_name = {line["contender"]: line for line in data["contenders"]}
    assert by_name["draft x5"]["speedup_vs_plain"]["median"] == pytest.approx(2.5)
    assert by_name["draft x5"]["least_vs_plain"] == pytest.approx(2.5)
    assert by_name["draft x5"]["vs_plain"]["a"]["high"] is None, "one reply has no interval"
    assert by_name["theirs"]["ours_over"]["median"] == pytest.approx(1.25)
    assert set(data["categories"]) == {"chat", "copy"}
    assert data["verify_cost"][0]["rows"] == 1
    assert len(data["replies"]) == 6
    assert data["replies"][0]["tokens"] == [5, 6, 7]
    assert data["pair"]["name"] == "Fake pair"


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_a_picture(name: str, start: bytes, report: BenchReport, tmp_path: Path) -> None:
    write_plot(report, tmp_path / name)
    drawn = (tmp_path / name).read_bytes()
    assert drawn.startswith(start)
    assert len(drawn) > 2000
