"""The chat service over the scripted engine."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.attachments.files import Attachment, with_attachments
from specchat.chat.rows import INTERRUPTED
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.config.catalog import Pair
from specchat.config.personas import Persona
from specchat.config.used_pairs import UsedPairs
from specchat.engine.protocol.events import AwaitingClient, Failed, Finished, Loading, PromptProgress, Started
from specchat.engine.protocol.options import Limits, Message, Sampling, Span, Speculation, Written
from specchat.engine.protocol.pair_info import NO_SYSTEM_ROLE, StrategyStatus, TemplateFacts
from specchat.engine.protocol.requests import Cancel, Change, Count, Generate, Load
from specchat.engine.protocol.stats import Stats
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update
from specchat.service.settings import Preferences
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, Clock, flush, paced, ready, requested, service_of, start


def test_a_reply_is_asked_for_and_built_up() -> None:
    engine = FakeEngine(("Hello there.",))
    session = ready(engine, Preferences(system="Be kind.", seed=7))
    assert session.send("hi") == ""
    assert requested(engine).messages == (Message("system", "Be kind."), Message("user", "hi"))
    assert requested(engine).sampling == Sampling(seed=7, temperature=0.7)
    assert requested(engine).speculation.draft_length == 5
    session.poll()
    (turn,) = session.conversation.turns
    assert turn.reply is not None
    assert (turn.reply.text, turn.reply.state, session.reply) == ("Hello there.", "finished", None)
    session.send("again")
    assert [message.content for message in requested(engine).messages] == ["Be kind.", "hi", "Hello there.", "again"]


def test_sent_while_loading_it_waits_for_the_model() -> None:
    engine = FakeEngine()
    session = start(engine)
    assert session.send("hi") == ""
    assert not any(isinstance(request, Generate) for request in engine.requests)
    session.poll()
    session.poll()
    assert session.last_reply is not None
    assert session.last_reply.text == "Hello there."


def test_without_a_seed_each_reply_gets_its_own() -> None:
    engine = FakeEngine()
    session = ready(engine)
    seeds = set()
    for _ in range(5):
        session.send("hi")
        seeds.add(requested(engine).sampling.seed)
        session.poll()
    assert len(seeds) == 5


def test_regenerate_asks_the_same_with_a_new_seed_and_leaves_the_old_reply_out() -> None:
    engine = FakeEngine(("first", "second"))
    session = ready(engine, Preferences(seed=7))
    assert session.regenerate() != ""
    session.send("hi")
    session.poll()
    assert session.regenerate() == ""
    assert requested(engine).messages == (Message("user", "hi"),)
    assert requested(engine).sampling.seed != 7
    session.poll()
    (turn,) = session.conversation.turns
    assert [reply.text for reply in turn.replies] == ["first", "second"]


def test_stop_keeps_the_partial_text() -> None:
    engine, clock = paced()
    session = ready(engine)
    assert (session.at_work, session.stopping) == (False, False)
    session.send("count")
    clock.now = 0.5
    session.poll()
    assert (session.at_work, session.stopping) == (True, False)
    session.stop()
    assert session.stopping
    assert isinstance(engine.requests[-1], Cancel)
    session.poll()
    reply = session.last_reply
    assert reply is not None
    assert (reply.outcome, reply.text) == ("stopped", "one two three four five")
    session.send("go on")
    assert requested(engine).messages[1] == Message("assistant", "one two three four five")


def test_a_second_stop_restarts_an_engine_that_does_not_answer() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now = 0.5
    session.poll()
    engine.send = engine.requests.append  # type: ignore[method-assign]
    session.stop()
    assert session.poll() == []
    session.stop()
    reply = session.last_reply
    assert reply is not None
    assert (reply.state, session.reply, session.stopping) == ("failed", None, False)
    assert reply.text == "one two three four five"
    session.poll()
    assert session.loaded.info is not None


def test_a_queued_reply_can_be_stopped() -> None:
    session = start(FakeEngine())
    session.send("hi")
    session.stop()
    assert session.reply is None
    session.poll()
    assert session.loaded.info is not None


def test_only_one_reply_at_a_time() -> None:
    engine, _ = paced()
    session = ready(engine)
    session.send("count")
    assert "a reply is running" in session.send("more")
    assert "a reply is running" in session.regenerate()
    assert len(session.conversation.turns) == 1


def test_drafting_changes_at_once_and_sampling_with_the_next_reply() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now = 0.5
    session.poll()
    sent = len(engine.requests)
    session.change(replace(session.settings, sampling=Sampling(temperature=1.5)))
    assert len(engine.requests) == sent
    session.change(replace(session.settings, strategy="lookup", draft_length=3))
    request = engine.requests[-1]
    assert isinstance(request, Change)
    assert (request.speculation.strategy, request.speculation.draft_length) == ("lookup", 3)
    clock.now = 9
    session.poll()
    reply = session.last_reply
    assert reply is not None
    assert [mark.text for mark in reply.marks] == ["draft x5 → lookup x3 at token 5"]
    session.send("next")
    assert requested(engine).sampling.temperature == 1.5


REFUSED = (Started(0, 9, 0, 0, Speculation()), Failed(0, "context", "too long for the context"))


def test_a_reply_that_fails_unanswered_gives_its_prompt_back() -> None:
    session = ready(FakeEngine((REFUSED,)))
    session.send("my prompt")
    assert session.poll()[-1] == Update("ended", "too long for the context", "my prompt")
    assert session.last_reply is None
    session.send("shorter")
    assert session.conversation.messages(prompt="x") == (Message("user", "x"),)


def test_a_prefill_is_used_once_and_comes_back_with_its_prompt() -> None:
    engine = FakeEngine((REFUSED, "fine", "better", "other"))
    session = ready(engine)
    session.prefill = "Well,"
    session.send("my prompt")
    assert session.next_prefill == ""
    session.poll()
    assert session.next_prefill == "Well,"
    session.send("shorter")
    session.poll()
    assert session.last_reply is not None
    assert (session.last_reply.start.prefill, session.next_prefill) == ("Well,", "")
    session.regenerate()
    assert session.last_reply.start.prefill == "Well,"
    session.poll()
    session.send("next")
    assert session.last_reply.start.prefill == ""


def test_a_reply_that_was_stopped_goes_on_from_its_tokens() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now += 0.45
    session.poll()
    session.stop()
    session.poll()
    first = session.last_reply
    assert first is not None
    assert first.end.reason == "cancelled"
    assert session.go_on() == ""
    begun = requested(engine).begun
    assert (begun.text, begun.token_ids) == (first.text, first.written.token_ids)
    assert begun.token_ids
    assert requested(engine).sampling.seed == first.seed  # with another one it would not say what it would have said
    clock.now += 60
    session.poll()
    second = session.last_reply
    assert second is not None
    assert second.text.startswith(first.text)
    assert len(second.text) > len(first.text)
    session.regenerate()
    assert requested(engine).begun == begun


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("<think>\nhm so", [("\nhm so", True)]),
        ("<think>hm</think>\n\nYes", [("hm", True), ("\n\nYes", False)]),
        ("Yes", [("Yes", False)]),
    ],
)
def test_a_reply_of_an_older_chat_goes_on_in_the_part_where_it_was_cut(text: str, spans: list[Span]) -> None:
    engine, _ = paced()
    session = ready(engine)
    session.send("count")
    session.stop()
    session.poll()
    assert session.last_reply is not None
    session.last_reply.restore(Written(text), known=False)
    assert session.go_on() == ""
    assert requested(engine).begun == Written.of(spans, thinking=spans[-1][1])


def test_a_system_prompt_without_a_role_is_told_once() -> None:
    engine = FakeEngine(info=replace(INFO, template=TemplateFacts(system_role=False)))
    session = ready(engine, Preferences(system="Be kind."))
    told: list[Update] = []
    for prompt in ("one", "two"):
        session.send(prompt)
        told += [update for update in session.poll() if update.kind == "notice"]
    assert told == [Update("notice", NO_SYSTEM_ROLE)]
    plain = ready(FakeEngine(info=replace(INFO, template=TemplateFacts(system_role=False))))
    plain.send("one")
    assert not [update for update in plain.poll() if update.kind == "notice"]


def test_a_prefill_that_was_not_used_does_not_go_along_into_another_chat() -> None:
    session = ready(FakeEngine())
    session.prefill = "Well,"
    session.chats.new()
    assert session.next_prefill == ""


def test_files_go_along_with_a_prompt() -> None:
    engine = FakeEngine(info=replace(INFO, context=10))
    session = ready(engine)
    note = Attachment("n.txt", "one two three four five six")
    assert session.count(with_attachments("see", [note]))
    session.poll()
    assert "too long" in session.send("see", (note,))
    assert session.send("see") == ""
    session.poll()
    assert "too long" not in session.send("see again", (note,))
    assert "three four" in requested(engine).messages[-1].content
    assert session.conversation.turns[-1].attachments == (note,)


def test_a_second_reply_that_fails_leaves_the_first() -> None:
    session = ready(FakeEngine(("fine", REFUSED)))
    session.send("my prompt")
    session.poll()
    session.regenerate()
    assert session.poll()[-1] == Update("ended", "too long for the context")
    assert session.last_reply is not None
    assert session.last_reply.text == "fine"


def test_a_failed_reply_keeps_its_text_and_the_chat_goes_on() -> None:
    engine = FakeEngine(("one two three four five six",))
    session = ready(engine)
    engine.fail_reply("memory", "out of memory\x1b[2J")
    session.send("hi")
    updates = session.poll()
    reply = session.last_reply
    assert reply is not None
    assert (reply.state, reply.outcome) == ("failed", "out of memory␛[2J")
    assert reply.text
    assert updates[-1] == Update("ended", "out of memory␛[2J")
    session.send("again")
    session.poll()
    assert session.last_reply is not None
    assert session.last_reply.state == "finished"


def test_a_dead_engine_is_started_again_and_the_partial_reply_stays() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now = 0.5
    session.poll()
    engine.die()
    kinds = [update.kind for update in session.poll()]
    assert kinds[:2] == ["ended", "loading"]
    session.poll()
    assert session.loaded.info is not None
    assert session.last_reply is not None
    assert session.last_reply.text == "one two three four five"
    assert session.send("again") == ""
    clock.now = 9
    session.poll()
    assert session.last_reply.state == "finished"


def test_a_reply_that_waits_for_another_program_says_so() -> None:
    busy = AwaitingClient(0, "serve\x1b[2J", 12)
    service = ready(FakeEngine(([Started(0, 1, 0, 0, Speculation()), busy, Finished(0, "stop", "", (), Stats())],)))
    service.send("hi")
    said = [update.message for update in service.poll() if update.kind == "notice"]
    assert said == ["The engine answers serve\u241b[2J (process 12) first."]


def test_death_while_idle_is_noticed() -> None:
    engine = FakeEngine()
    session = ready(engine)
    assert session.poll() == []
    engine.die()
    assert session.poll()[0].kind == "loading"
    assert (session.loaded.info, session.loaded.loading) == (None, Loading("starting the engine again"))
    session.poll()
    assert session.loaded.info is not None


def test_without_restarts_a_dead_engine_has_no_pair() -> None:
    engine = FakeEngine()
    session = service_of(engine, restarts=False)
    session.load(CATALOG.pairs[0])
    session.poll()
    engine.die()
    assert session.poll()[-1].kind == "load-failed"
    assert (session.loaded.info, session.loaded.loading) == (None, None)


def test_one_death_told_twice_counts_once() -> None:
    engine = FakeEngine()
    session = ready(engine)
    engine.die()
    engine.send(Count(99, ()))
    assert [update.kind for update in session.poll()] == ["loading"]
    session.poll()
    assert session.loaded.info is not None


def test_an_engine_that_keeps_dying_is_left_alone() -> None:
    engine = FakeEngine()
    session = ready(engine)
    engine._load = lambda _: None  # type: ignore[method-assign]
    engine.die()
    assert session.poll()[-1].kind == "loading"
    engine.die()
    assert session.poll()[-1].kind == "load-failed"
    assert "no model is loaded" in session.send("hi")
    assert not session.busy
    del engine._load
    session.load(CATALOG.pairs[0])
    # An engine that was asked to load a pair, or began a reply, is started again.
    for begins, kind in ((False, "loading"), (True, "loading"), (False, "load-failed")):
        session.poll()
        assert session.loaded.info is not None
        if begins:
            session.send("hi")
            session.poll()
        engine.die()
        assert session.poll()[-1].kind == kind


def test_a_load_that_fails_says_why_and_the_pair_before_is_used_again() -> None:
    engine = FakeEngine()
    session = ready(engine)
    session.send("hi")
    session.poll()
    session.change(replace(session.settings, draft_length=7, seed=3))
    before = session.settings
    engine.fail_load("model", "no such folder: [/models]")
    session.load(CATALOG.pairs[1])
    assert session.send("while loading") == ""
    update = session.poll()[-1]
    assert update == Update("load-failed", "no such folder: [/models]. Still using demo.", "while loading")
    assert len(session.conversation.turns) == 2
    session.poll()
    assert (session.loaded.id, session.settings, session.loaded.error) == ("demo", before, "")
    assert session.loaded.info is not None
    assert session.send("again") == ""


def test_arguments_go_to_a_template_that_offers_such_a_value_alone() -> None:
    """What was chosen for another pair's is kept for it, and not sent."""
    engine = FakeEngine(info=replace(INFO, template=TemplateFacts(choices=(("reasoning_effort", ("high",)),))))
    session = ready(engine)
    for chosen, sent in (("low", ()), ("high", (("reasoning_effort", "high"),))):
        engine.requests.clear()
        session.change(replace(session.settings, template=(("reasoning_effort", chosen), ("thinking", True))))
        assert session.count("hi")
        session.send("hi")
        session.poll()
        asked = [one for one in engine.requests if isinstance(one, Count | Generate)]
        assert [(type(one), one.template) for one in asked] == [(Count, sent), (Generate, sent)]
        assert session.settings.template[0] == ("reasoning_effort", chosen)


def test_settings_changed_while_a_pair_is_loaded_stay_when_that_fails() -> None:
    engine = FakeEngine()
    session = ready(engine)
    engine.fail_load("model", "no such folder")
    session.load(CATALOG.pairs[1])
    session.change(replace(session.settings, seed=9))
    session.poll()
    assert session.settings.seed == 9


def test_an_engine_that_ends_right_after_each_load_is_left_alone() -> None:
    class Short(FakeEngine):
        def _load(self, request: Load) -> None:
            super()._load(request)
            self.die()

    engine = Short()
    session = start(engine)
    updates = [update for _ in range(9) for update in session.poll()]
    assert [update.kind for update in updates].count("load-failed") == 1
    assert "the engine keeps ending: The engine process was killed" in updates[-1].message
    assert sum(isinstance(request, Load) for request in engine.requests) == 1
    assert session.loaded.loading is None
    assert session.poll() == []


def test_a_pair_that_ends_the_engine_gives_way_to_the_one_before() -> None:
    engine = FakeEngine()
    session = ready(engine)
    session.load(CATALOG.pairs[1])
    engine.poll()
    engine.die()
    engine.send(Count(99, ()))  # brings the news again
    assert session.poll()[-1].message == "The engine process was killed by SIGKILL. Still using demo."
    session.poll()
    assert (session.loaded.id, session.loaded.info is not None) == ("demo", True)


def test_the_first_pair_gives_way_to_the_one_that_is_always_there() -> None:
    engine = FakeEngine()
    engine.fail_load("download", "No connection to huggingface.co.")
    session = service_of(engine, fallback=CATALOG.pairs[0])
    session.load(CATALOG.pairs[1])
    assert session.poll()[-1].message == "No connection to huggingface.co. Using demo instead."
    session.poll()
    assert (session.loaded.id, session.loaded.info is not None) == ("demo", True)
    assert session.settings.strategy == CATALOG.pairs[0].strategy


def test_a_pair_tried_again_while_the_one_before_is_loaded_gives_way_to_it_again() -> None:
    engine = FakeEngine()
    engine.fail_load("server", "box cannot be reached.")
    session = service_of(engine, fallback=CATALOG.pairs[0])
    session.load(CATALOG.pairs[1])
    assert session.poll()[-1].message == "box cannot be reached. Using demo instead."
    for _ in range(2):  # the engine is started anew, as the load of demo is given up
        engine.fail_load("server", "box cannot be reached.")
    session.load(CATALOG.pairs[1])
    assert session.poll()[-1].message == "box cannot be reached. Using demo instead."
    session.poll()
    assert (session.loaded.id, session.loaded.info is not None) == ("demo", True)


def test_a_pair_that_cannot_be_loaded_either_leaves_the_reason() -> None:
    engine = FakeEngine()
    session = ready(engine)
    engine.fail_load("model", "no big one")
    engine.fail_load("model", "no demo any more")
    session.load(CATALOG.pairs[1])
    session.poll()
    session.poll()
    assert (session.loaded.error, session.loaded.loading) == ("no demo any more", None)


def test_a_load_that_another_one_replaces_is_not_waited_for() -> None:
    engine, restarted = FakeEngine(), list[bool]()
    session = ready(engine)
    engine.restart = lambda: restarted.append(True)  # type: ignore[method-assign]
    session.load(CATALOG.pairs[1])
    assert restarted == []
    session.load(CATALOG.pairs[0])
    assert restarted == [True]


def test_loading_can_be_given_up() -> None:
    engine = FakeEngine()
    session = ready(engine)
    session.load(CATALOG.pairs[1])
    session.send("hi")
    assert session.give_up_loading() == "not loaded; going back to demo"
    session.poll()
    session.poll()
    assert session.loaded.id == "demo"
    assert session.conversation.turns[-1].answered
    assert session.give_up_loading() == ""


def test_a_strategy_that_cannot_be_used_falls_back_to_plain_with_the_reason() -> None:
    statuses = (StrategyStatus("plain", True), StrategyStatus("draft", False, "the tokenizers differ"))
    engine = FakeEngine(info=replace(INFO, strategies=statuses))
    session = start(engine)
    update = session.poll()[-1]
    assert "the tokenizers differ" in update.message
    assert session.settings.strategy == "plain"


def test_what_the_command_line_asks_for_wins_over_the_pair_but_only_for_the_first() -> None:
    chosen = Preferences(strategy="lookup", draft_length=2, sampling=Sampling(temperature=0.1))
    session = ready(FakeEngine(), chosen)
    assert (session.settings.strategy, session.settings.draft_length) == ("lookup", 2)
    session.load(CATALOG.pairs[1])
    assert (session.settings.strategy, session.settings.sampling.temperature) == ("draft", 0.7)


def test_a_prompt_known_to_be_too_long_is_refused() -> None:
    engine = FakeEngine(info=replace(INFO, context=20))
    session = ready(engine)
    text = "word " * 30
    assert session.count(text)
    assert isinstance(engine.requests[-1], Count)
    session.poll()
    assert session.prompt_count.too_long(text)
    assert "the context holds 20" in session.send(text)
    assert session.send("short") == ""


def test_a_count_says_nothing_once_something_else_is_set() -> None:
    engine = FakeEngine(info=replace(INFO, context=20))
    session = ready(engine)
    text = "word " * 30
    assert session.count(text)
    session.poll()
    settings, limits = session.settings, session.settings.limits
    session.change(replace(settings, limits=replace(limits, context="refuse")))
    assert not session.prompt_count.known(text)
    session.change(settings)
    session.chat.set_system("Be brief.")
    assert not session.prompt_count.known(text)
    session.chat.set_system("")
    assert session.prompt_count.too_long(text)
    session.load(CATALOG.pairs[1])
    assert session.send(text) == ""


def test_a_reply_without_text_is_no_answer_to_go_on_from() -> None:
    session = ready(FakeEngine(([Started(0, 1, 0, 0, Speculation()), Finished(0, "cancelled", "", (), Stats())],)))
    assert session.go_on() == "there is no reply to continue yet"
    session.send("hi")
    session.poll()
    assert session.last_reply is not None
    assert session.go_on() == "the last prompt has no answer yet: /again asks for one"


def test_a_prompt_that_was_refused_is_asked_again_in_its_place() -> None:
    session = ready(FakeEngine((REFUSED, REFUSED, "fine")))
    for _ in range(2):
        session.send("my prompt")
        session.poll()
        assert session.go_on() == "the last prompt has no answer yet: /again asks for one"
    session.send("my prompt")
    session.poll()
    (turn,) = session.conversation.turns
    assert (turn.prompt, len(session.conversation.siblings(turn))) == ("my prompt", 1)
    assert turn.reply is not None
    assert turn.reply.text == "fine"
    session.send("my prompt")
    assert len(session.conversation.turns) == 2


def test_a_new_chat_forgets_the_old_one() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now = 99
    session.poll()
    session.chats.new()
    session.poll()
    assert session.conversation.turns == []
    assert session.send("new") == ""
    assert requested(engine).messages == (Message("user", "new"),)
    clock.now = 200
    session.poll()
    assert session.last_reply is not None
    assert session.last_reply.state == "finished"


def saved_session(engine: FakeEngine, folder: Path) -> ChatService:
    return ready(engine, store=Store(folder / "chats.db"))


def half_answered(folder: Path, strategy: str = "draft") -> tuple[FakeEngine, Clock, ChatService, Reply]:
    """A saved chat in which a reply is being written."""
    engine, clock = paced()
    session = saved_session(engine, folder)
    session.change(replace(session.settings, strategy=strategy))
    session.send("count")
    clock.now = 0.5
    session.poll()
    flush(session.chat.saving.store)
    assert session.reply is not None
    return engine, clock, session, session.reply


def test_a_reply_goes_on_while_another_chat_is_shown(tmp_path: Path) -> None:
    _, clock, session, reply = half_answered(tmp_path, "lookup")
    first = session.conversation
    saved = Store(tmp_path / "chats.db").load(first.key)[0].turns[0].reply
    assert saved is not None
    assert saved.raw == reply.raw != ""
    session.chats.new()
    session.change(replace(session.settings, strategy="draft"))
    clock.now = 0.7
    assert session.poll() == []  # nothing of it is shown here
    assert (session.reply, session.elsewhere, session.last_reply) == (None, first, None)
    clock.now = 99
    assert session.poll() == [Update("answered", "“Count” is answered")]
    assert reply.text == "one two three four five six seven eight nine ten"
    flush(session.chat.saving.store)
    assert session.chats.open(first.key) == ""
    assert session.settings.strategy == "lookup"  # not that of the chat that was shown at its end


def test_a_chat_that_is_being_answered_is_found_as_it_is(tmp_path: Path) -> None:
    _, _, session, reply = half_answered(tmp_path)
    first = session.conversation
    session.chats.new()
    assert session.chats.open(first.key) == ""
    assert session.conversation is first
    assert session.reply is reply
    session.stop()
    assert session.poll() == [Update("ended")]
    assert reply.outcome == "stopped"


def test_chats_wait_for_each_other(tmp_path: Path) -> None:
    engine, clock, session, _ = half_answered(tmp_path)
    session.chats.new()
    assert session.send("then this") == ""
    waiting = session.reply
    assert waiting is not None
    assert "a reply is running" in session.send("and this")
    session.poll()
    assert (waiting.state, waiting.text) == ("waiting", "")
    flush(session.chat.saving.store)
    (turn,) = Store(tmp_path / "chats.db").load(session.conversation.key)[0].turns
    assert (turn.prompt, len(turn.replies)) == ("then this", 1)
    first = session.replies.all[0].reply
    engine.poll = lambda: [Finished(first.id, "stop", "one", (), Stats())]  # type: ignore[method-assign]
    session.poll()
    assert waiting.state == "reading"
    del engine.poll
    clock.now = 200
    session.poll()
    clock.now = 300
    session.poll()
    assert waiting.state == "finished"
    assert session.busy is False


def test_another_pair_stops_what_runs_elsewhere(tmp_path: Path) -> None:
    _, _, session, reply = half_answered(tmp_path)
    session.chats.new()
    session.load(CATALOG.pairs[1])
    assert Update("answered") in session.poll()
    assert (reply.outcome, session.loaded.name) == ("stopped", "Qwen3 8B + 0.6B")


def test_a_reply_that_waits_for_another_stops_at_once(tmp_path: Path) -> None:
    _, clock, session, first = half_answered(tmp_path)
    session.chats.new()
    session.send("then this")
    waiting = session.reply
    assert waiting is not None
    session.stop()
    assert (waiting.outcome, session.reply) == ("stopped", None)
    clock.now = 300
    session.poll()
    assert (first.state, waiting.text) == ("finished", "")


def test_a_second_reply_that_is_stopped_while_it_waits_leaves_the_first(tmp_path: Path) -> None:
    engine, clock = paced()
    session = saved_session(engine, tmp_path)
    session.send("count")
    clock.now = 99
    session.poll()
    chat, first = session.conversation, session.last_reply
    session.chats.new()
    session.send("then this")
    session.chats.open(chat.key)
    assert first is not None
    session.regenerate()
    session.stop()
    flush(session.chat.saving.store)
    for found in (session.conversation, Store(tmp_path / "chats.db").load(chat.key)[0]):
        (turn,) = found.turns
        assert [reply.key for reply in turn.replies] == [first.key]


def test_a_second_reply_stays_if_it_has_text_or_ended_by_itself() -> None:
    clock = Clock()
    session = ready(FakeEngine(("one two three four five six seven eight nine", ""), tokens_per_second=10, clock=clock))
    session.send("count")
    clock.now = 99
    session.poll()
    session.regenerate()
    clock.now = 200
    session.poll()
    session.regenerate()
    clock.now = 200.6
    session.poll()
    session.stop()
    session.poll()
    (turn,) = session.conversation.turns
    assert [bool(reply.raw) for reply in turn.replies] == [True, False, True]
    assert turn.replies[-1].outcome == "stopped"


def test_a_death_ends_the_reply_that_was_written_and_the_others_are_asked_for_again(tmp_path: Path) -> None:
    engine, clock, session, first = half_answered(tmp_path)
    session.chats.new()
    session.send("then this")
    waiting = session.reply
    assert waiting is not None
    engine.die()
    ended, loading = session.poll()
    assert (ended.kind, ended.prompt, loading.kind) == ("ended", "", "loading")  # no prompt for the box of another chat
    assert ended.message.startswith("“Count”: ")
    assert (first.state, waiting.state) == ("failed", "queued")
    session.poll()
    clock.now = 200
    session.poll()
    assert (waiting.state, session.busy) == ("finished", False)


def test_a_second_stop_leaves_what_waits_in_other_chats(tmp_path: Path) -> None:
    engine, clock, session, first = half_answered(tmp_path)
    answered = session.conversation.key
    session.chats.new()
    session.send("then this")
    waiting = session.reply
    assert waiting is not None
    session.chats.open(answered)
    send, engine.send = engine.send, engine.requests.append  # type: ignore[method-assign]
    session.stop()
    engine.send = send  # type: ignore[method-assign]
    session.stop()
    assert (first.state, waiting.state) == ("failed", "queued")
    session.poll()
    clock.now = 200
    session.poll()
    assert waiting.state == "finished"


def test_an_engine_that_keeps_dying_ends_what_waits_too(tmp_path: Path) -> None:
    engine, _, session, _ = half_answered(tmp_path)
    session.chats.new()
    session.send("then this")
    waiting = session.reply
    engine._load = lambda _: None  # type: ignore[method-assign]
    engine.die()
    session.poll()
    engine.die()
    ended, failed = session.poll()[-2:]
    assert (ended.kind, failed.kind, failed.prompt) == ("ended", "load-failed", "then this")
    assert waiting is not None
    assert (waiting.state, session.busy) == ("failed", False)


def test_a_deleted_chat_is_not_answered_further(tmp_path: Path) -> None:
    engine, _, session, _ = half_answered(tmp_path)
    key = session.conversation.key
    session.chats.new()
    assert session.chats.delete(key).wait(60)
    assert any(isinstance(request, Cancel) for request in engine.requests)
    assert session.poll() == [Update("answered")]  # and it is not said to be answered
    assert not session.replies
    assert "not there" in session.chats.open(key)


def test_a_chat_renamed_while_it_is_answered_keeps_the_new_name(tmp_path: Path) -> None:
    engine, clock = paced()
    session = saved_session(engine, tmp_path)
    session.send("count")
    first = session.conversation
    session.chats.rename(first.key, "Numbers")
    session.chats.new()
    assert session.chats.rename(first.key, "Figures").wait(60)
    clock.now = 99
    assert session.poll() == [Update("answered", "“Figures” is answered")]
    assert session.chats.open(first.key) == ""
    assert session.conversation.title == "Figures"
    session.chats.new()
    assert session.chats.open(first.key) == ""
    assert session.conversation.title == "Figures"


def test_replies_that_wait_for_the_pair_are_made_as_their_chats_say() -> None:
    statuses = tuple(StrategyStatus(name, name != "draft", "the tokenizers differ") for name in ("plain", "draft"))
    engine = FakeEngine(info=replace(INFO, strategies=statuses))
    session = start(engine)
    session.change(replace(session.settings, limits=Limits(max_tokens=5)))
    session.send("short")
    session.chats.new()
    session.change(replace(session.settings, limits=Limits(max_tokens=900)))
    session.send("long")
    session.poll()
    sent = [request for request in engine.requests if isinstance(request, Generate)]
    assert [request.limits.max_tokens for request in sent] == [5, 900]
    assert [request.speculation.strategy for request in sent] == ["plain", "plain"]
    assert [each.reply.speculation.strategy for each in session.replies.all] == ["plain", "plain"]
    assert [each.reply.state for each in session.replies.all] == ["reading", "waiting"]
    reply = session.replies.all[0].reply
    engine.poll = lambda: [PromptProgress(reply.id, 50, 100, 20)]  # type: ignore[method-assign]
    session.poll()
    assert (reply.state, reply.prompt.tokens, reply.prompt.reused) == ("reading", 100, 50)
    engine.poll = lambda: [Started(reply.id, 101, 20, 7, Speculation("lookup"))]  # type: ignore[method-assign]
    session.poll()
    assert (reply.state, reply.prompt.tokens, reply.speculation.strategy) == ("writing", 101, "lookup")


def test_the_beginning_that_was_set_for_once_counts_before_that_of_the_persona() -> None:
    session = service_of(FakeEngine(), personas=(Persona("pirate", "Be a pirate.", "Ahoy"),))
    for system, once, expected in (("", "", ""), ("Be a pirate.", "", "Ahoy"), ("Be a pirate.", "Well", "Well")):
        session.conversation.system, session.prefill = system, once
        assert session.next_prefill == expected


def test_a_strategy_is_chosen_with_the_length_that_the_pair_has_for_it() -> None:
    session = ready(FakeEngine())
    for strategy, length in (("lookup", None), ("draft", 5)):
        session.change(replace(session.settings, draft_length=9))
        assert session.choose_strategy(strategy) == ""
        assert (session.settings.strategy, session.settings.draft_length) == (strategy, length)


def test_the_pair_that_was_chosen_and_loaded_is_kept_for_the_next_start() -> None:
    class Used(UsedPairs):
        def keep(self, pair: Pair, *, chosen: bool) -> None:
            kept.append((pair.id, chosen))

    kept: list[tuple[str, bool]] = []
    engine = FakeEngine()
    session = service_of(engine, used=Used(Path("unused")))
    for number, chosen, fails in ((0, False, False), (1, True, False), (0, True, True)):
        if fails:
            engine.fail_load("model", "no such folder")
        session.load(CATALOG.pairs[number], chosen=chosen)
        session.poll()
        session.poll()
    assert kept == [("demo", False), ("big", True), ("big", False)]


def test_a_chat_waits_for_its_pair_again_where_another_one_cannot_be_loaded() -> None:
    engine = FakeEngine()
    session = ready(engine)
    assert session.room_for_files == INFO.context * 3 // 2
    for name, shown in ((3, "big"), ("Big\none", "Big one")):
        session.bind({"pair": "big", "pair_name": name})
        assert (session.wanted, session.wanted_name) == ("big", shown)
        assert session.pair_view == {"pair": "big", "pair_name": shown}
    for begins_another, wanted in ((False, "big"), (True, "")):
        engine.fail_load("model", "no such folder")
        session.load(replace(CATALOG.pairs[0], spec=replace(CATALOG.pairs[0].spec, id="third")))
        assert (session.wanted, session.room_for_files) == ("", sys.maxsize)
        if begins_another:
            session.chats.new()
        session.poll()
        session.poll()
        assert (session.loaded.id, session.wanted) == ("demo", wanted)


def test_what_is_shown_and_the_system_prompt_are_saved_without_a_further_reply(tmp_path: Path) -> None:
    session = saved_session(FakeEngine(("First.", "Second.")), tmp_path)
    chat = session.chat
    assert chat.saved is None
    assert chat.show_branch(-1) == "there is only one version of everything here"
    session.send("hi")
    session.poll()
    assert chat.show_branch(-1) == "there is only one version of everything here"
    session.regenerate()
    session.poll()
    assert chat.show_branch(1) == "that is the last of 2 versions"
    assert chat.show_branch(-1) == ""
    assert chat.show_branch(-1) == "that is the first of 2 versions"
    chat.scroll = {"turn": 0}
    for system in ("", "Be brief."):
        session.close()
        session = saved_session(FakeEngine(), tmp_path)
        assert session.chats.open(chat.conversation.key) == ""
        assert session.last_reply is not None
        shown = (session.last_reply.text, session.conversation.system, session.chat.scroll, session.chat.saved)
        assert shown == ("First.", system, {"turn": 0}, chat.conversation.key)
        session.chat.set_system("Be brief.")
        flush(session.chat.saving.store)
        assert Store(tmp_path / "chats.db").load(chat.conversation.key)[0].system == "Be brief."


def test_opening_the_chat_that_is_shown_changes_nothing(tmp_path: Path) -> None:
    session = saved_session(FakeEngine(), tmp_path)
    session.send("hi")
    session.poll()
    chat = session.conversation
    session.change(replace(session.settings, strategy="lookup"))
    assert session.chats.open(chat.key) == ""
    assert session.conversation is chat
    assert session.settings.strategy == "lookup"


def test_an_edited_prompt_is_counted_in_the_place_of_the_one_before() -> None:
    engine = FakeEngine(("A long answer.",))
    session = ready(engine)
    session.send("one")
    session.poll()
    session.send("two")
    session.poll()

    def counted() -> tuple[str, ...]:
        assert session.count("three")
        session.poll()
        request = [each for each in engine.requests if isinstance(each, Count)][-1]
        return tuple(message.content for message in request.messages)

    assert counted() == ("one", "A long answer.", "two", "A long answer.", "three")
    session.chat.editing = session.conversation.turns[0]
    assert not session.prompt_count.known("three")
    assert counted() == ("three",)
    session.chat.editing = session.conversation.turns[1]
    assert counted() == ("one", "A long answer.", "three")
    session.send("three")
    session.poll()
    assert counted() == ("one", "A long answer.", "three", "A long answer.", "three")


def test_a_count_for_the_chat_before_is_not_shown_with_the_next() -> None:
    session = ready(FakeEngine())
    assert session.count("one two three")
    session.chats.new()
    session.poll()
    assert session.prompt_count.counted is None
    assert not session.busy


def test_what_was_written_when_the_app_ends_is_all_there(tmp_path: Path) -> None:
    engine, clock = paced()
    session = saved_session(engine, tmp_path)
    session.send("count")
    key = session.conversation.key
    session.chats.new()
    session.send("wait")
    clock.now = 0.5
    session.poll()
    last = session.conversation.key
    session.chats.open(key)
    session.close()
    session.chat.saving.store.close()
    store = Store(tmp_path / "chats.db")
    assert [entry.key for entry in store.chats()] == [key, last]
    assert store.load(last)[0].turns[0].reply is not None
    reply = store.load(key)[0].turns[0].reply
    assert reply is not None
    assert (reply.text, reply.outcome) == ("one two three four five", INTERRUPTED)
    assert reply.steps


def test_another_pair_stops_the_running_reply() -> None:
    engine, clock = paced()
    session = ready(engine)
    session.send("count")
    clock.now = 0.5
    session.poll()
    session.load(CATALOG.pairs[1])
    session.poll()
    assert session.loaded.info is not None
    assert session.loaded.info.name == "Qwen3 8B + 0.6B"
    assert session.last_reply is not None
    assert session.last_reply.outcome == "stopped"


def test_a_copy_of_the_open_chat_has_the_settings_of_now(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    session = ready(FakeEngine(), store=store)
    session.send("hi")
    session.poll()
    session.change(replace(session.settings, sampling=Sampling(temperature=1.5)))
    before = session.settings
    key, saved = session.chats.duplicate(session.conversation.key)
    assert saved.wait(60)
    session.change(replace(session.settings, sampling=Sampling()))
    assert session.chats.open(key) == ""
    assert session.settings == before
    store.close()


def test_settings_of_a_saved_chat_are_no_others(tmp_path: Path) -> None:
    def saved_with(temperature: float, pair: int) -> str:
        session = service_of(FakeEngine(), store=store)
        session.load(CATALOG.pairs[pair])
        session.poll()
        session.change(replace(session.settings, sampling=Sampling(temperature=temperature), template=(("a", "b"),)))
        session.send("hi")
        session.poll()
        flush(store)
        return session.conversation.key

    store = Store(tmp_path / "chats.db")
    same, other = saved_with(0.22, 0), saved_with(0.33, 1)
    bare = Conversation()
    store.add_turn(bare, bare.add(Turn("imported")), {})
    session = ready(FakeEngine(), store=store)
    session.change(usual := replace(session.settings, sampling=Sampling(temperature=0.9)))
    for key, temperature in ((same, 0.22), (other, 0.33), (bare.key, 0.9)):
        assert session.chats.open(key) == ""
        assert session.settings.sampling.temperature == temperature
    assert session.settings == usual
    for key in (same, other):
        assert session.chats.open(key) == ""
        session.chats.new()
        assert session.settings == usual
    assert session.chats.open(other) == ""
    session.load(CATALOG.pairs[1], session.settings)
    session.poll()
    session.chats.new()
    assert session.settings == session.defaults(CATALOG.pairs[1])
    store.close()


def test_closing_saves_the_text_so_far_of_a_reply_in_another_chat(tmp_path: Path) -> None:
    engine, clock = paced()
    store = Store(tmp_path / "chats.db")
    session = ready(engine, store=store)
    session.chat.saving._clock = lambda: 0.0  # no save falls due on the way
    session.send("count")
    written_in = session.conversation.key
    clock.now = 0.5
    session.poll()
    session.chats.new()
    session.close()
    store.close()
    again = Store(tmp_path / "chats.db")
    reply = again.load(written_in)[0].turns[0].reply
    again.close()
    assert reply is not None
    assert (reply.text, reply.end.error) == ("one two three four five", INTERRUPTED)
