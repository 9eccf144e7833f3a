"""The embedded pair: a slice of the losslessness matrix, and how well its draft drafts."""

import json
import re
from collections import defaultdict
from dataclasses import replace

import pytest

from measure.drafted import DRAFTED, tokens_a_step
from specchat.config.catalog import load_catalog
from specchat.config.paths import PACKAGE, demo_model
from specchat.engine import check
from specchat.engine.check import LENGTHS, QUICK_SAMPLINGS, SAMPLINGS, CheckPrompt, CheckResult, run
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from specchat.tui.composing.suggestions import SUGGESTIONS
from training.corpus.explain_keys import KEYS

PROMPTS = PACKAGE / "demo" / "prompts.jsonl"

HEADS = ("dflash", "eagle3", "medusa")
DRAFTING = [name for name, info in STRATEGIES.items() if name != "plain" and info.needs_head in (None, *HEADS)]


def prompts(each: int, skip: int = 0) -> list[CheckPrompt]:
    """`each` held-out prompts of every category."""
    found: dict[str, list[CheckPrompt]] = defaultdict(list)
    for row in map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines()):
        found[row["category"]].append(CheckPrompt(row["id"], tuple(Message(**m) for m in row["messages"])))
    return [p for chosen in found.values() for p in chosen[skip : skip + each]]


def differing(results: list[CheckResult]) -> list[CheckResult]:
    return [r for r in results if not r.identical]


def test_it_has_all_but_heads_that_nobody_trained(demo: Session) -> None:
    assert [status.name for status in demo.info.strategies if status.available] == ["plain", *DRAFTING]
    assert sum(file.stat().st_size for head in HEADS for file in demo_model(head).iterdir()) <= 12 << 20


@pytest.mark.parametrize(
    ("strategy", "least"), [("eagle3", 3.0), ("dflash", 3.0), ("medusa", 1.7), ("early-exit", 2.4)]
)
def test_it_drafts_as_far_as_the_documentation_says(
    strategy: str, least: float, demo: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its heads and its first layers, on a held-out prompt of each category."""
    monkeypatch.setattr(demo.runner.executor.policies, "off", True)
    chats = [("", prompt.messages) for prompt in prompts(1, skip=2)]
    assert tokens_a_step(demo, Speculation(strategy, DRAFTED[strategy][0]), chats)[""] >= least


@pytest.mark.parametrize(("prompt", "words"), list(zip(SUGGESTIONS, ("a fox", "draft", "def "), strict=True)))
def test_it_answers_what_an_empty_chat_suggests(prompt: str, words: str, demo: Session) -> None:
    """Whatever the seed, drawn as the pair is by default."""
    sampling = load_catalog(None).find("demo").sampling
    for seed in range(12):
        request = Generate(1, (Message("user", prompt),), replace(sampling, seed=seed), Limits(24))
        *_, last = demo.generate(request)
        assert isinstance(last, Finished)
        assert words in last.text.lower()


@pytest.mark.parametrize("wording", ["Which key is it to {}?", "Remind me how to {}."])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_it_names_the_keys_of_the_table_of_actions(temperature: float, wording: str, demo: Session) -> None:
    """Those and no others; no training dialogue has the second wording. A key that moves asks for more training."""
    for shown, _, goals in KEYS:
        sampling, words = Sampling(seed=5, temperature=temperature), wording.format(goals.split("|")[0])
        *_, last = demo.generate(Generate(1, (Message("user", words),), sampling, Limits(16)))
        assert isinstance(last, Finished)
        said = re.findall(r"\*\*(.+?)\*\*", last.text)
        assert said, last.text
        assert set(said[0].split(" or ")) <= set(shown.split(" or ")), (words, last.text)


def test_every_category_is_identical_with_default_lengths(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with one sampling and every other strategy, in replies of 14 tokens; the next test has all samplings."""
    monkeypatch.setattr(check, "QUICK_TOKENS", 14)
    monkeypatch.setattr(check, "QUICK_S", float("inf"))
    info = demo.info
    for first in (0, 1):
        drafting, chosen = DRAFTING[first::2], prompts(1)[first::2]
        assert len(chosen) >= len(QUICK_SAMPLINGS)
        monkeypatch.setattr(
            demo, "info", replace(info, strategies=tuple(info.strategy(name) for name in ("plain", *drafting)))
        )
        results = list(run(demo, chosen, full=False))
        # Two turns for each strategy, and plain against itself in the second.
        assert len(results) == len(chosen) * (2 * len(drafting) + 1)
        assert len({result.sampling for result in results}) == len(QUICK_SAMPLINGS)
        assert differing(results) == []


def test_all_samplings_are_identical_on_one_with_other_lengths(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest and the longest, with a strategy that copies, a draft model, a head and a tree."""
    monkeypatch.setattr(check, "MAX_TOKENS", 16)
    monkeypatch.setattr(check, "LENGTHS", (min(LENGTHS), max(LENGTHS)))
    strategies = tuple(demo.info.strategy(name) for name in ("plain", "lookup", "draft", "eagle3", "draft-tree"))
    monkeypatch.setattr(demo, "info", replace(demo.info, strategies=strategies))
    results = list(run(demo, prompts(1, skip=1)[:1], full=True))
    assert len(results) == len(SAMPLINGS) * (2 * 2 * 4 + 1)
    assert differing(results) == []


def test_a_difference_is_found_and_measured(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter whose word is taken unchecked must be caught."""
    from specchat.engine.decoding import host
    from specchat.engine.decoding.acceptance import AcceptedPath

    honest = host.judge

    def gullible(logits, draft, *rest):  # type: ignore[no-untyped-def]
        judged = honest(logits, draft, *rest)
        if not draft.tokens:
            return judged
        children, path = draft.children(), [0]
        while children[path[-1]]:
            path.append(children[path[-1]][0])
        return AcceptedPath(tuple(path[1:]), len(path) - 1, int(logits[path[-1]].argmax()))

    monkeypatch.setattr(host, "judge", gullible)
    monkeypatch.setattr(check, "QUICK_TOKENS", 12)
    results = differing(list(run(demo, prompts(1)[:2], full=False)))
    assert results
    for result in results:
        assert result.position is not None
        assert result.margin is not None
        assert result.margin >= 0
