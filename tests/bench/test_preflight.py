"""The checks before drafting: each rule on both of its sides, and the cost model's figure."""

import pytest

from specchat.bench.preflight import BestStrategy, Preflight, preflight_lines
from tests.parts import changed

QUIET = Preflight(
    plain_ms=2.0, bound_ms=1.6, checks=[1.0 + 0.05 * m for m in range(16)],
    best=BestStrategy("draft", length=4, draft=0.1, accepted=0.8, mean_draft=4.0, measured=2.4),
    waited=0.02, memory=3 << 30, free=8 << 30, prompts=24,
    exactness="by row",
)  # fmt: skip


def test_a_pair_for_which_drafting_pays() -> None:
    lines = preflight_lines(QUIET)
    assert [line[:2] for line in lines] == [*(f"{n}." for n in range(1, 8)), "Th"]
    assert "24 prompts was plain decoding's (by row)" in lines[0]
    assert lines[1] == "2. Room? The pair takes 3.00 GiB, and 8.0 are free beside it."
    assert lines[2] == "3. Quiet? Replies waited 2% of their time for a processor."
    assert "reading its weights 1.60, 80%: verifying several tokens at once saves that." in lines[3]
    assert "2 1.05, 4 1.15, 8 1.35, 16 1.75; 0.05 for each further one: drafts of 3 to 8 pay." in lines[4]
    assert "costs 0.10 of a plain step, which is cheap" in lines[5]
    # (4 * 0.1 + 1.2 - 1) / 4 is 15 %, and (1 + 3.2) / (0.4 + 1.2) is 2.62.
    assert "80% of its draft tokens are; a draft of 4 needs 15%, so drafting pays." in lines[6]
    assert lines[7] == "Then: the cost model gives 2.62 times plain, and 2.40 was measured."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"waited": 0.3}, "waited 30% of their time for a processor: measure again when less runs."),
        ({"bound_ms": 0.5}, "25%: most of it is other work."),
        ({"bound_ms": 0.0}, "4. Bound by memory? A plain step takes 2.00 ms."),
        ({"checks": [1.0] * 16}, "0.00 for each further one: long drafts pay."),
        ({"checks": [1.0 + 0.3 * m for m in range(16)]}, "0.30 for each further one: drafts should be short."),
        ({"checks": [1.0]}, "It was not measured."),
        ({"draft": 0.9}, "0.90 of a plain step, which is dear: copies may be better."),
        ({"accepted": 0.1}, "a draft of 4 needs 15%, so it does not pay."),
        ({"draft": 1.5}, "no share would do, so it does not pay."),
        ({"free": None}, "2. Room? The pair takes 3.00 GiB."),
        ({"strategy": "plain", "length": 0}, "Then: plain, 2.40 times plain, as measured."),
    ],
)
def test_each_rule_has_another_side(change: dict[str, object], words: str) -> None:
    assert words in "\n".join(preflight_lines(changed(QUIET, **change)))
