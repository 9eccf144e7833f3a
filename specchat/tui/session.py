"""The chat's state and its dealings with the engine: what is loaded, which replies run, what may be asked next."""

from dataclasses import replace
from itertools import count
from typing import Any

from specchat.attachments import Attachment, with_attachments
from specchat.chat.rows import INTERRUPTED
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.api import Change, Count, Failed, Speculation
from specchat.engine.port import EnginePort
from specchat.tui.composing.personas import persona_of
from specchat.tui.draft import Waiting
from specchat.tui.engine_events import EngineEvents, Update
from specchat.tui.insight.diagnosis import Advisor, Diagnosis
from specchat.tui.insight.ledger import Ledger
from specchat.tui.launch import Launch, Pair
from specchat.tui.loaded_pair import LoadedPair
from specchat.tui.prompt_count import PromptCount
from specchat.tui.racing import Racing
from specchat.tui.replies import Replies, Running
from specchat.tui.session_chats import Chats
from specchat.tui.settings import ChatSettings, as_data
from specchat.tui.shown_chat import ShownChat


class Session:
    """One engine, one chat that is shown, and the replies that run in this one and others.

    Requests that make no sense now are answered with a sentence, not raised.
    """

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        self.engine = engine
        self.launch = launch
        self.chat = ShownChat(launch, self._view)
        self.settings = ChatSettings(seed=launch.seed, limits=launch.limits)
        self.loaded = LoadedPair(engine, launch.fallback)
        self.wanted = ""
        """The pair of the chat that is shown, where another is loaded; empty when it is the loaded one."""
        self.warning = ""
        """The trouble with saving the last prompt, in a sentence."""
        self.ledger = Ledger()
        self.replies = Replies(engine, self.chat.saving, self.ledger.add)
        self.prompt_count = PromptCount()
        self.waiting: list[Waiting] = []
        """Prompts to send when the reply that runs here has ended."""
        self.prefill = ""
        """The beginning that the next reply is to have, once."""
        self._before: ChatSettings | None = None
        self._put = self.settings
        """The settings of the pair before and those that the latest load put in their place."""
        self._advisor = Advisor(self.ledger)
        self._ids = count(1)
        self.racing = Racing(self, self._ids)
        self.chats = Chats(self)
        self._events = EngineEvents(self)

    @property
    def conversation(self) -> Conversation:
        return self.chat.conversation

    @property
    def next_prefill(self) -> str:
        """The beginning of the next reply: the one asked for once, else the persona's."""
        persona = persona_of(self.conversation.system, self.launch.personas)
        return self.prefill or (persona.prefill if persona else "")

    # What runs

    @property
    def running(self) -> Running | None:
        """The reply that is written or waited for in the chat that is shown."""
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
        return self.loaded.loading is not None or bool(self.replies) or self.prompt_count.waiting or self.racing.running

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
        self.racing.end()
        if self.loaded.info is not None:
            self._before = self.settings
        self.settings = self._put = settings or self._defaults(pair)
        self.wanted = ""
        self.loaded.load(pair)

    def _defaults(self, pair: Pair) -> ChatSettings:
        launch = self.launch if self.loaded.pair is None else None
        strategy = (launch and launch.strategy) or pair.strategy
        return replace(
            self.settings,
            strategy=strategy,
            draft_length=(launch and launch.draft_length) or pair.lengths.get(strategy),
            acceptance=(launch and launch.acceptance) or pair.acceptance,
            sampling=(launch and launch.sampling) or pair.sampling,
        )

    def give_up_loading(self) -> str:
        """Go back to the pair before the one that is being loaded; what waits is asked of that. Gives a sentence."""
        back = self.loaded.give_up()
        if back is None:
            return ""
        self.take_back_settings()
        return f"not loaded; going back to {self.loaded.name}"

    def take_back_settings(self) -> None:
        """Another pair is used than was to be: with the settings it had, unless they were changed since."""
        if self.settings == self._put and self.loaded.pair is not None:
            self.settings = self._before or self._defaults(self.loaded.pair)

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
        if self.racing.running:
            return "a race is running: esc ends it; your text is kept"
        if self.wanted and self.replies:
            return "this chat's pair is loaded when the other chats are answered; your text is kept"
        if self.loaded.info is None and self.loaded.loading is None:
            return "no model is loaded: f3 chooses one; your text is kept"
        counted = self.prompt_count.counted
        if counted is not None and self.prompt_count.too_long(content):
            return (
                f"too long: {counted.tokens:,} tokens, the context holds {counted.context:,}; your text is kept"
                f"{self.way_out}"
            )
        return ""

    @property
    def way_out(self) -> str:
        """Advice for a chat that does not fit the context, to be added to a sentence."""
        if self.settings.limits.context != "refuse" or not self.conversation.turns:
            return ""
        return ". ctrl+n starts a new chat; /context drop-oldest leaves out the oldest turns"

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

    def go_on(self) -> str:
        """Continue the last reply where it ended, as another version of it; gives a refusal."""
        turn = self.conversation.last
        reply = turn.reply if turn is not None else None
        if turn is None or reply is None or not reply.raw:
            return "there is no reply to continue yet"
        if reply.ended and reply.state == "finished" and reply.reason == "stop":
            return "the last reply came to its end; write what you want next"
        if refusal := self.refusal(turn.content):
            return refusal
        self.prefill = reply.raw.rstrip(" ")  # a token is a space and its word
        self._answer(turn)
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
        self.replies.ask(running, speculation, self.loaded.plain_speed(running.reply.sampling))

    # The end

    def close(self) -> None:
        """The app ends: save how the chat is shown, and what was written of the replies that run."""
        shown = self.running
        self.replies.interrupt(INTERRUPTED)
        if shown is not None:
            self.chat.saving.ended(shown.chat, shown.reply)  # dates it: this is the chat to go on with
        self.chat.saving.looked(self.conversation)

    def _view(self) -> dict[str, Any]:
        return {"pair": self.wanted or self.loaded.id, "settings": as_data(self.settings)}

    # The prompt's length

    def count(self, content: str) -> bool:
        """Ask how many tokens a prompt of `content` would have; False when that cannot be asked now."""
        if self.loaded.info is None or self.replies or self.racing.running:
            return False
        request = next(self._ids)
        self.prompt_count.asked(request, content)
        messages = self.conversation.messages(prompt=content)
        self.engine.send(Count(request, messages, self.settings.limits, self.next_prefill))
        return True

    # Events

    def poll(self) -> list[Update]:
        """The events since the last call."""
        return self._events.poll()

    def check(self) -> list[Update]:
        """Like `poll`, for now and then while idle: notices a worker that died."""
        return self._events.check()
