"""The chat's state and its dealings with the engine: what is loaded, which replies run, what may be asked next."""

import threading
from dataclasses import replace
from itertools import count
from typing import Any

from specchat.attachments import Attachment, with_attachments
from specchat.chat.reply import Reply
from specchat.chat.rows import INTERRUPTED
from specchat.chat.tree import Conversation, Turn
from specchat.engine.api import Change, Count, Failed, Speculation
from specchat.engine.port import EnginePort
from specchat.tui.composing.personas import persona_of
from specchat.tui.engine_events import EngineEvents, Update
from specchat.tui.insight.diagnosis import Advisor, Diagnosis
from specchat.tui.insight.ledger import Ledger
from specchat.tui.insight.race import Race, rival
from specchat.tui.launch import Launch, Pair
from specchat.tui.loaded_pair import LoadedPair
from specchat.tui.prompt_count import PromptCount
from specchat.tui.replies import Replies, Running
from specchat.tui.settings import ChatSettings, as_data, from_data
from specchat.tui.shown_chat import CannotOpen, ShownChat


class Session:
    """One engine, one chat that is shown, and the replies that run in this one and others.

    Requests that make no sense now are answered with a sentence, not raised.
    """

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        self.engine = engine
        self.launch = launch
        self.chat = ShownChat(launch, self._view)
        self.settings = ChatSettings(seed=launch.seed, limits=launch.limits)
        self.loaded = LoadedPair(engine)
        self.wanted = ""
        """The pair of the chat that is shown, where another is loaded; empty when it is the loaded one."""
        self.warning = ""
        """What was wrong with saving the last prompt, in a sentence."""
        self.race: Race | None = None
        """The latest race that was not ended; its events never reach a conversation."""
        self.ledger = Ledger()
        self.replies = Replies(engine, self.chat.saving, self.ledger.add)
        self.prompt_count = PromptCount()
        self.prefill = ""
        """What the next reply is to begin with, once."""
        self._advisor = Advisor(self.ledger)
        self._ids = count(1)
        self._events = EngineEvents(self)

    @property
    def conversation(self) -> Conversation:
        return self.chat.conversation

    @property
    def next_prefill(self) -> str:
        """What the next reply will begin with: what was asked for once, else the persona's."""
        persona = persona_of(self.conversation.system, self.launch.personas)
        return self.prefill or (persona.prefill if persona else "")

    # What runs

    @property
    def running(self) -> Running | None:
        """What is being written or waited for in the chat that is shown."""
        return self.replies.of(self.conversation.key)

    @property
    def reply(self) -> Reply | None:
        """The reply being written or waited for in the chat that is shown."""
        return self.running.reply if self.running is not None else None

    @property
    def stopping(self) -> bool:
        """Whether the reply that runs here was asked to stop."""
        return self.running is not None and self.running.stopping

    @property
    def elsewhere(self) -> Conversation | None:
        """The chat that the engine writes in, where it is not the one that is shown."""
        first = next(iter(self.replies.all), None)
        return first.chat if first is not None and first is not self.running else None

    @property
    def busy(self) -> bool:
        """Whether events are to be expected."""
        return self.loaded.loading is not None or bool(self.replies) or self.prompt_count.waiting or self.racing

    @property
    def racing(self) -> bool:
        return self.race is not None and self.race.running

    @property
    def last_reply(self) -> Reply | None:
        """The reply that runs in the chat that is shown, or its latest one."""
        if self.running is not None:
            return self.running.reply
        return next((turn.reply for turn in reversed(self.conversation.turns) if turn.reply), None)

    @property
    def diagnosis(self) -> Diagnosis:
        """Whether drafting pays, and what would pay more."""
        return self._advisor.diagnose(self.last_reply, self.loaded.info, self.settings.speculation, self.loaded.lengths)

    # The pair and the settings

    def load(self, pair: Pair, settings: ChatSettings | None = None) -> None:
        """Load `pair`, stopping all replies; its defaults replace the settings that the command line left open.

        Starts the engine where none runs. With `settings` the replies are made with these.
        """
        for running in reversed(self.replies.all):
            self.replies.stop(running)
        self.end_race()
        launch = self.launch if self.loaded.pair is None else None
        strategy = (launch and launch.strategy) or pair.strategy
        self.settings = settings or replace(
            self.settings,
            strategy=strategy,
            draft_length=(launch and launch.draft_length) or pair.lengths.get(strategy),
            acceptance=(launch and launch.acceptance) or pair.acceptance,
            sampling=(launch and launch.sampling) or pair.sampling,
        )
        self.wanted = ""
        self.loaded.load(pair)

    def change(self, settings: ChatSettings) -> None:
        """Use `settings` from now on: speculation at the running reply's next step, the rest from the next reply."""
        before, self.settings = self.settings, settings
        reply = self.reply
        if reply is not None and reply.state != "queued" and settings.speculation != before.speculation:
            self.engine.send(Change(reply.id, settings.speculation))

    def choose_strategy(self, name: str) -> str:
        """Draft with another strategy at its own length; gives the reason where the loaded pair cannot."""
        if lack := self.loaded.lack(name):
            return lack
        self.change(replace(self.settings, strategy=name, draft_length=self.loaded.lengths.get(name)))
        return ""

    def settle(self) -> str:
        """Decode plainly where the loaded pair cannot draft as is set; gives the reason."""
        lack = self.loaded.lack(self.settings.strategy)
        if lack:
            self.settings = replace(self.settings, strategy="plain", draft_length=None)
        return lack

    # Replies

    def refusal(self, content: str) -> str:
        """Why `content`, a prompt with what is attached to it, cannot be sent now; empty when it can."""
        if self.running is not None:
            return "a reply is running: esc stops it; your text is kept"
        if self.racing:
            return "a race is running: esc ends it; your text is kept"
        if self.wanted and self.replies:
            return "this chat's pair is loaded when the other chats are answered; your text is kept"
        if self.loaded.info is None and self.loaded.loading is None:
            return "no model is loaded: f3 chooses one; your text is kept"
        counted = self.prompt_count.counted
        if counted is not None and self.prompt_count.too_long(content):
            return f"too long: {counted.tokens:,} tokens, the context holds {counted.context:,}; your text is kept"
        return ""

    def send(self, text: str, attachments: tuple[Attachment, ...] = ()) -> str:
        """Ask for a reply to `text`, in the place of the prompt that is edited if one is; gives a refusal."""
        if refusal := self.refusal(with_attachments(text, attachments)):
            return refusal
        turn, self.warning = self.chat.ask(text, attachments)
        self._answer(turn)
        return ""

    def regenerate(self, turn: Turn | None = None) -> str:
        """Ask for another reply to `turn`, or to the last prompt, with a new seed."""
        turn = turn or self.conversation.last
        if turn is None:
            return "there is no reply to make again yet"
        if refusal := self.refusal(turn.content):
            return refusal
        self.prefill = self.next_prefill or (turn.reply.prefill if turn.reply else "")
        self._answer(turn, fresh_seed=True)
        return ""

    def stop(self) -> str:
        """Stop the reply that runs here at its next step; asked twice, by restarting the engine."""
        running = self.running
        if running is None:
            return "nothing is running"
        if running.stopping:
            self._events.fail_begun(Failed(None, "died", "stopped by restarting the engine"))
            self.loaded.restart()
            return "restarting the engine"
        self.replies.stop(running)
        return ""

    def _answer(self, turn: Turn, *, fresh_seed: bool = False) -> None:
        settings = replace(self.settings, seed=None) if fresh_seed else self.settings
        reply = Reply(next(self._ids), self.loaded.name, settings.sampling_with(None), settings.speculation)
        reply.prefill, self.prefill = self.next_prefill, ""
        running = self.replies.add(self.conversation, turn, reply, settings.limits)
        if self.loaded.info is not None:
            self.ask(running)

    def ask(self, running: Running) -> None:
        """Have the engine begin a reply that waited for the pair."""
        speculation = self.settings.speculation if running is self.running else running.reply.speculation
        if self.loaded.lack(speculation.strategy):
            speculation = Speculation.of("plain", None, speculation.acceptance)
        self.replies.ask(running, speculation, self.loaded.plain_tokens_per_second)

    # Chats

    def new_chat(self) -> None:
        """Start over with an empty conversation; what runs in the one before goes on."""
        self.chat.start()
        self._left()

    def open_chat(self, key: str) -> str:
        """Show a saved chat with the settings it had; what runs in the one before goes on. Gives a refusal.

        Its pair is loaded when something is written, not before: many chats may only be read.
        """
        if key == self.conversation.key:
            return ""
        running = self.replies.of(key)
        try:
            view = self.chat.open(key, running.chat if running is not None else None)
        except CannotOpen as error:
            return str(error)
        self._left()
        wanted = str(view.get("pair") or "")
        self.wanted = wanted if wanted != self.loaded.id else ""
        settings = from_data(view.get("settings"))
        if settings is not None:
            self.settings = settings
        if not self.wanted:
            self.settle()
        return ""

    def rename_chat(self, key: str, name: str) -> threading.Event:
        """Give a saved chat another title; the event is set once that is saved."""
        running = self.replies.of(key)
        for chat in (self.conversation, *([running.chat] if running is not None else [])):
            if chat.key == key:
                chat.name = name
        return self.chat.saving.store.rename(key, name)

    def delete_chat(self, key: str) -> threading.Event:
        """Delete a saved chat; the open one gives way to an empty one. The event is set once that is saved."""
        if running := self.replies.of(key):
            self.replies.stop(running)
        if key == self.conversation.key:
            self.new_chat()
        return self.chat.delete(key)

    def show_branch(self, step: int, turn: Turn | None = None, *, of_prompt: bool = False) -> str:
        """Show another version of a prompt or reply; gives a refusal."""
        if self.running is not None:
            return "a reply is running: esc stops it"
        return self.chat.show_branch(step, turn, of_prompt=of_prompt)

    def close(self) -> None:
        """The app ends: save how the chat is shown, and what was written of the replies that run."""
        shown = self.running
        self.replies.interrupt(INTERRUPTED)
        if shown is not None:
            self.chat.saving.ended(shown.chat, shown.reply)  # dates it: this is the chat to go on with
        self.chat.saving.looked(self.conversation)

    def _left(self) -> None:
        """Another chat is shown, and the one before has been saved with its pair."""
        self.prompt_count.forget()
        self.wanted = self.prefill = ""

    def _view(self) -> dict[str, Any]:
        return {"pair": self.wanted or self.loaded.id, "settings": as_data(self.settings)}

    # Races

    def start_race(self) -> str:
        """Answer the last prompt again, plainly and then drafted; gives the refusal if there is one."""
        turn = self.conversation.last
        if turn is None or turn.reply is None:
            return "ask something first: a race answers the last prompt again"
        if self.running is not None or self.racing:
            return "a reply is running: esc stops it"
        if self.replies:
            return "another chat is being answered: a race needs the engine for itself"
        if self.loaded.info is None or self.loaded.pair is None:
            return "no model is loaded: f3 chooses one"
        if self.wanted:
            return "this chat's pair is not loaded: write something or f3 loads one"
        pair, info = self.loaded.pair, self.loaded.info
        speculation = rival(self.settings.speculation, pair.strategy, pair.lengths, info)
        if speculation is None:
            return "no drafting strategy can be used here, so there is nothing to race"
        messages = self.conversation.messages(turn)
        sampling, limits = turn.reply.sampling, self.settings.limits
        self.race = Race(self.engine.send, self._ids, messages, sampling, limits, speculation, turn.reply.prefill)
        return ""

    def end_race(self) -> None:
        """Forget the race, stopping it where it runs."""
        if self.race is not None:
            self.race.stop()
        self.race = None

    # The prompt's length

    def count(self, content: str) -> bool:
        """Ask how many tokens a prompt of `content` would have; False when that cannot be asked now."""
        if self.loaded.info is None or self.replies or self.racing:
            return False
        request = next(self._ids)
        self.prompt_count.asked(request, content)
        messages = self.conversation.messages(prompt=content)
        self.engine.send(Count(request, messages, self.settings.limits, self.next_prefill))
        return True

    # Events

    def poll(self) -> list[Update]:
        """What happened since the last call."""
        return self._events.poll()

    def check(self) -> list[Update]:
        """Like `poll`, for now and then while idle: notices a worker that died."""
        return self._events.check()
