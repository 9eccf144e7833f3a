"""The figures of a reply, summed from its steps."""

from specchat.engine.protocol.events import Step
from specchat.engine.protocol.step_tree import branched
from specchat.engine.protocol.tally import Tally
from tests.fake_steps import stats, steps


def step(drafted: int, tested: int, accepted: int, emitted: int) -> Step:
    return Step(1, (), drafted, tested, accepted, emitted, 2.0 * drafted, 10.0, 0.5, 20 + emitted, "draft")


def test_figures_are_counted_as_vllm_does() -> None:
    """The second step's draft was accepted as a whole, but the reply ended inside it; the third had no draft."""
    tally = Tally.of([step(4, 3, 2, 3), step(3, 3, 2, 2), step(0, 0, 0, 1)])
    figures = tally.stats(prompt_tokens=5, reused_tokens=3, ttft_ms=7.0)
    assert figures.mean_acceptance_length == tally.acceptance_length == 1 + 4 / 3
    assert figures.draft_acceptance_rate == tally.acceptance_rate == 4 / 7
    assert figures.tested_acceptance_rate == 4 / 6
    assert (figures.num_steps, figures.num_spec_steps, figures.completion_tokens) == (3, 2, 6)
    assert (figures.acceptance_histogram, figures.per_step_accepted) == ((0, 0, 2), (2, 2))
    assert figures.tokens_per_second == 1e3 * 6 / (14 + 30 + 1.5)
    assert (figures.prompt_tokens, figures.reused_tokens, figures.ttft_ms) == (5, 3, 7.0)
    assert tally.context_used == 21


def test_a_tree_is_drafted_by_tokens_and_judged_by_places() -> None:
    """Of three places with three candidates each one step kept two, and one nothing."""
    made = steps("one two three four", (2, 0), length=9, candidates=3)
    assert all(branched(each.drafts) for each in made)
    figures = stats(made, 0, 0.0)
    assert (figures.num_draft_tokens, figures.num_tested_draft_tokens, figures.num_accepted_draft_tokens) == (18, 4, 2)
    assert (figures.draft_acceptance_rate, figures.tested_acceptance_rate) == (2 / 18, 2 / 4)
    assert figures.mean_acceptance_length == 2


def test_of_nothing_there_are_no_rates() -> None:
    tally = Tally()
    assert (tally.acceptance_length, tally.acceptance_rate, tally.tokens_per_second) == (None, None, 0.0)
    figures = tally.stats(prompt_tokens=5)
    assert (figures.mean_acceptance_length, figures.draft_acceptance_rate, figures.speedup_vs_plain) == (1.0, 0.0, None)
