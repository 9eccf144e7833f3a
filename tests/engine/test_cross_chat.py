"""What the engine takes in of saved chats, when, and how it is forgotten."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from time import thread_time

import pytest

from specchat.engine.drafters import earlier as earlier_module
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Forget, Generate, Remember
from specchat.engine.reply.cross_chat import PIECE_CHARS, CrossChatIndexer
from specchat.engine.session import Session


@pytest.fixture
def earlier() -> Earlier:
    return Earlier()


@pytest.fixture
def indexer(earlier: Earlier) -> CrossChatIndexer:
    return CrossChatIndexer(earlier, lambda text: list(text.encode()))


def take_in(indexer: CrossChatIndexer) -> int:
    """Take in all that waits; in how many pieces."""
    pieces = 1
    while indexer.digest():
        pieces += 1
    return pieces


def known(earlier: Earlier, text: str) -> bool:
    return bool(list(earlier.places.matches(list(text.encode()), 9, 9)))


def test_replies_are_taken_in_piece_by_piece(earlier: Earlier, indexer: CrossChatIndexer) -> None:
    indexer.remember(Remember("a", ("fox " * PIECE_CHARS, "lamp")))
    assert not known(earlier, "fox")
    assert indexer.digest()
    assert known(earlier, "fox")
    assert not known(earlier, "lam")
    assert take_in(indexer) == 4
    assert known(earlier, "lam")
    assert not indexer.digest()


def test_a_chat_that_is_known_is_left_as_it_is(earlier: Earlier, indexer: CrossChatIndexer) -> None:
    earlier.add("written", list(b"crab"))
    for chat in ("written", "told", "told"):
        indexer.remember(Remember(chat, ("the fox",)))
    take_in(indexer)
    assert len(list(earlier.places.matches(list(b"fo"), 9, 9))) == 1


def test_what_waits_is_forgotten_too(earlier: Earlier, indexer: CrossChatIndexer) -> None:
    for chat, text in (("a", "fox"), ("b", "lamp"), ("a2", "crab")):
        indexer.remember(Remember(chat, (text,)))
    indexer.digest()
    indexer.forget(Forget("a"))
    assert not known(earlier, "fo")
    indexer.forget(Forget("b"))
    take_in(indexer)
    assert [known(earlier, text) for text in ("fo", "lam", "cra")] == [False, False, True]
    indexer.remember(Remember("a", ("fox",)))
    take_in(indexer)
    assert known(earlier, "fo")


def test_all_that_was_told_is_forgotten_and_what_was_written_stays(earlier: Earlier, indexer: CrossChatIndexer) -> None:
    earlier.add("a", list(b"crab"))
    indexer.remember(Remember("b", ("fox", "lamp")))
    indexer.digest()
    indexer.forget(Forget(None))
    assert not known(earlier, "fo")
    take_in(indexer)
    assert [known(earlier, text) for text in ("fo", "lam", "cra")] == [False, False, True]


def test_what_is_too_much_is_left_out(
    earlier: Earlier, indexer: CrossChatIndexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_module, "REMEMBERED", 6)
    indexer.remember(Remember("new", ("foxfox",)))
    indexer.remember(Remember("old", ("lamp",)))
    take_in(indexer)
    assert (known(earlier, "fox"), known(earlier, "lam")) == (True, False)


# With a session

ASKED = "Tell me a story about a fox."


@pytest.fixture
def alone(tiny_pair: PairSpec) -> Session:
    """A session of its own, for it is to remember nothing yet."""
    return load(tiny_pair, lambda _: None)


def reply(session: Session, strategy: str, chat: str = "", cold: bool = False) -> Finished:
    request = Generate(
        1, (Message("user", ASKED),), Sampling(), Limits(30), Speculation.of(strategy), chat=chat, cold=cold
    )
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last


def kept(session: Session, strategy: str, cold: bool = False) -> int:
    return reply(session, strategy, cold=cold).stats.num_accepted_draft_tokens


@pytest.fixture
def words(demo: Session) -> Iterator[str]:
    """What the demo pair answers, remembered in no chat; the session remembers nothing before and after."""
    yield reply(demo, "plain", cold=True).text
    demo.runner.earlier.forget("")
    demo.cross_chat.forget(Forget(None))


@pytest.mark.parametrize("strategy", ["suffix", "ngram"])
def test_a_saved_reply_is_copied_until_its_chat_is_forgotten(demo: Session, words: str, strategy: str) -> None:
    cold = kept(demo, strategy, cold=True)
    demo.cross_chat.remember(Remember("saved", (words,)))
    take_in(demo.cross_chat)
    assert kept(demo, strategy, cold=True) == cold
    demo.runner.earlier.hidden = False
    assert kept(demo, strategy) > cold + 10
    demo.runner.earlier.forget("")
    demo.cross_chat.forget(Forget("saved"))
    take_in(demo.cross_chat)
    assert kept(demo, strategy) == cold


def test_a_reply_is_remembered_under_its_chat(alone: Session) -> None:
    reply(alone, "plain", chat="mine")
    assert alone.runner.earlier.knows("mine")
    alone.cross_chat.forget(Forget("mine"))
    assert not alone.runner.earlier.knows("mine")
    reply(alone, "plain", chat="mine", cold=True)
    assert not alone.runner.earlier.knows("mine")


@pytest.mark.timed
def test_a_piece_costs_as_much_however_many_were_before_it(demo: Session) -> None:
    """Of time on the processor, which others do not add to; a request waits for one piece at most."""
    demo.cross_chat.remember(Remember("long", ("There was a fox with a lamp in the old house. " * 2_000,)))
    took = []
    more = True
    while more:
        begun = thread_time()
        more = demo.cross_chat.digest()
        took.append(thread_time() - begun)
    demo.cross_chat.forget(Forget(None))
    assert len(took) > 40
    assert median(took[-10:]) < 3 * median(took[:10])


def test_a_reply_that_is_an_earlier_one_again_says_so(demo: Session) -> None:
    """What it was faster by is not what drafting a new text brings."""
    story = (Message("user", "Tell me a story about a fox and a lamp."),)
    other = (Message("user", "Why is the sky blue?"),)
    request = Generate(1, story, Sampling(temperature=0.0), Limits(64), Speculation.of("suffix"), chat="again")
    ends = [
        list(demo.generate(asked))[-1]
        for asked in (request, request, replace(request, speculation=Speculation()), replace(request, messages=other))
    ]
    demo.runner.earlier.forget("again")
    first, again, plain, new = (end.stats.num_repeated_tokens for end in ends if isinstance(end, Finished))
    assert (first, plain, new) == (0, 0, 0)
    assert isinstance(ends[1], Finished)
    assert again == len(ends[1].token_ids) > 0


def test_repeated_tokens_are_those_at_the_beginning(earlier: Earlier) -> None:
    for tokens in ([1, 2, 3], [1, 2, 4, 5], [9]):
        earlier.add("chat", tokens)
    assert [earlier.repeated(new) for new in ([1, 2, 4, 6], [1, 2, 3, 4], [2, 3], [])] == [3, 3, 0, 0]
    earlier.hidden = True
    assert earlier.repeated([1, 2]) == 0
