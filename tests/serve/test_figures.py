"""A reply's figures in the words of other servers, number by number."""

from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Speculation, Written
from specchat.engine.protocol.stats import Stats
from specchat.serve import figures
from tests.fake_steps import steps

STATS = Stats(7, 3, 5, verify_ms=40.0, num_draft_tokens=6, num_accepted_draft_tokens=2)


def test_the_usage_counts_prompt_reply_and_drafts() -> None:
    assert figures.usage(STATS) == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 4},
    }


def test_the_mean_time_of_a_token_is_known_of_an_empty_reply_too() -> None:
    for stats, mean in ((STATS, 8.0), (Stats(7, 3, 0, verify_ms=40.0), 40.0)):
        assert figures.metrics(Finished.of(1, "stop", Written(), (), stats))["mean_itl_ms"] == mean


def test_timings_are_sums_of_replies_so_far() -> None:
    timings = figures.Timings()
    assert timings.data() | {"prompt_ms": 0.0} == dict.fromkeys(timings.data(), 0)
    step = steps("one two")[0]
    for _ in range(2):
        timings.add(Started(1, 7, 3, 0, Speculation(), prompt_ms=20.0))
        timings.add(step)
    assert timings.data() == {
        "cache_n": 6,
        "prompt_n": 8,
        "prompt_ms": 40.0,
        "prompt_per_token_ms": 5.0,
        "prompt_per_second": 200.0,
        "predicted_n": 4,
        "predicted_ms": 2 * step.milliseconds,
        "predicted_per_token_ms": step.milliseconds / 2,
        "predicted_per_second": 2e3 / step.milliseconds,
        "draft_n": 2 * step.drafted,
        "draft_n_accepted": 2,
    }
