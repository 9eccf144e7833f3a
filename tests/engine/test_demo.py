"""The embedded pair: a slice of the losslessness matrix, and how well its draft drafts."""

import json
from collections import defaultdict

import pytest

from specchat.config.paths import PACKAGE
from specchat.engine import check
from specchat.engine.check import LENGTHS, QUICK_SAMPLINGS, SAMPLINGS, CheckPrompt, CheckResult, run
from specchat.engine.options import Message
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES

PROMPTS = PACKAGE / "demo" / "prompts.jsonl"

DRAFTING = [name for name, info in STRATEGIES.items() if name != "plain" and not info.needs_head]


def prompts(each: int, skip: int = 0) -> list[CheckPrompt]:
    """`each` held-out prompts of every category."""
    found: dict[str, list[CheckPrompt]] = defaultdict(list)
    for row in map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines()):
        found[row["category"]].append(CheckPrompt(row["id"], tuple(Message(**m) for m in row["messages"])))
    return [p for chosen in found.values() for p in chosen[skip : skip + each]]


def differing(results: list[CheckResult]) -> list[CheckResult]:
    return [r for r in results if not r.identical]


@pytest.mark.cpu
def test_every_category_is_identical_with_default_lengths(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In replies of 24 tokens; the next test's are whole."""
    monkeypatch.setattr(check, "MAX_TOKENS", 24)
    chosen = prompts(1)
    results = list(run(demo, chosen, full=False))
    # Two turns for each way of drafting, and plain against itself in the second.
    assert len(results) == len(chosen) * len(QUICK_SAMPLINGS) * (2 * len(DRAFTING) + 1)
    assert differing(results) == []


def test_all_samplings_and_lengths_are_identical_on_one(demo: Session) -> None:
    chosen = prompts(1, skip=1)[:1]
    results = list(run(demo, chosen, full=True))
    assert len(results) == len(chosen) * len(SAMPLINGS) * (2 * len(DRAFTING) * len(LENGTHS) + 1)
    assert differing(results) == []


def test_a_difference_is_found_and_measured(demo: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter whose word is taken unchecked must be caught."""
    from specchat.engine.decoding import host
    from specchat.engine.decoding.acceptance import Verdict

    honest = host.judge

    def gullible(logits, draft, *rest):  # type: ignore[no-untyped-def]
        verdict = honest(logits, draft, *rest)
        if not draft.tokens:
            return verdict
        children, path = draft.children(), [0]
        while children[path[-1]]:
            path.append(children[path[-1]][0])
        return Verdict(tuple(path[1:]), len(path) - 1, int(logits[path[-1]].argmax()))

    monkeypatch.setattr(host, "judge", gullible)
    results = differing(list(run(demo, prompts(1)[:2], full=False)))
    assert results
    for result in results:
        assert result.position is not None
        assert result.margin is not None
        assert result.margin >= 0
