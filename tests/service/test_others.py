"""Replies for other programs, of which several may be written in turns."""

from specchat.engine.protocol.events import Elsewhere, Finished, OtherClient
from specchat.engine.protocol.stats import Stats
from specchat.service.others import OtherReplies
from tests.fake import FakeEngine


def test_the_one_that_is_written_is_followed_and_then_the_next() -> None:
    others = OtherReplies(FakeEngine(), wanted=True)
    for number, client in ((1, "one"), (2, "two")):
        assert others.take(Elsewhere(OtherClient(number, client, 9, "hello")))
    assert others.now is not None
    assert others.now.client == "one"
    assert others.take(Elsewhere(Finished(1, "stop", "hi", (), Stats())))
    assert others.now is not None
    assert others.now.client == "two"
    assert others.take(Elsewhere(Finished(2, "stop", "ho", (), Stats())))
    assert others.now is None
    assert others.last is not None
    assert (others.last.client, others.last.reply.text) == ("two", "ho")
    assert not others.take(Elsewhere(Finished(2, "stop", "ho", (), Stats())))


def test_all_of_them_end_with_the_engine() -> None:
    others = OtherReplies(FakeEngine(), wanted=True)
    for number in (1, 2):
        others.take(Elsewhere(OtherClient(number, "one", 9, "hello")))
    last = others.now
    others.lost()
    assert others.now is None
    assert last is not None
    assert last.reply.ended
