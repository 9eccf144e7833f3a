"""What a session knows: the pair, the chat that is shown, the settings, and the replies that run."""

from dataclasses import replace
from typing import Any

from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.config.catalog import Pair
from specchat.engine.options import Speculation
from specchat.engine.port import EnginePort
from specchat.engine.requests import Change
from specchat.tui.composing.personas import persona_of
from specchat.tui.draft import QueuedPrompt
from specchat.tui.fetching import Fetching
from specchat.tui.insight.diagnosis import Advisor, Diagnosis
from specchat.tui.insight.gpu_use import GpuWatch
from specchat.tui.insight.ledger import Ledger
from specchat.tui.launch import Launch
from specchat.tui.loaded_pair import LoadedPair
from specchat.tui.prompt_count import PromptCount
from specchat.tui.replies import Replies, Running
from specchat.tui.saved_replies import SavedReplies
from specchat.tui.settings import ChatSettings, as_data
from specchat.tui.shown_chat import ShownChat


class SessionState:
    """The parts of a session act on this; what may be asked of it is the `Session`'s to say."""

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        self.engine = engine
        self.launch = launch
        self.chat = ShownChat(launch, self._view)
        self.settings = ChatSettings(seed=launch.seed, limits=launch.limits)
        self.loaded = LoadedPair(engine, launch.fallback)
        self.wanted = ""
        """The pair of the chat that is shown, where another is loaded; empty when it is the loaded one."""
        self.gpu = GpuWatch()
        self.fetching = Fetching(launch.models)
        self.ledger = Ledger()
        self.saved = SavedReplies(engine, launch.store, launch.copies_saved)
        self.replies = Replies(engine, self.chat.saving, self.ledger.add)
        self.prompt_count = PromptCount()
        self.waiting: list[QueuedPrompt] = []
        """Prompts to send when the reply that runs here has ended."""
        self.prefill = ""
        """The beginning that the next reply is to have, once."""
        self._before: ChatSettings | None = None
        self._put = self.settings
        """The settings of the pair before and those that the latest load put in their place."""
        self._advisor = Advisor(self.ledger)

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
    def last_reply(self) -> Reply | None:
        """The reply that runs in the chat that is shown, or its latest one."""
        if self.running is not None:
            return self.running.reply
        return next((turn.reply for turn in reversed(self.conversation.turns) if turn.reply), None)

    @property
    def diagnosis(self) -> Diagnosis:
        """Whether drafting pays, and what would pay more."""
        return self._advisor.diagnose(self.last_reply, self.loaded.info, self.settings.speculation, self.loaded.lengths)

    # The settings

    def put_settings(self, settings: ChatSettings) -> None:
        """Another pair is to be loaded, with these."""
        if self.loaded.info is not None:
            self._before = self.settings
        self.settings = self._put = settings

    def take_back_settings(self) -> None:
        """Another pair is used than was to be: with the settings it had, unless they were changed since."""
        if self.settings == self._put and self.loaded.pair is not None:
            self.settings = self._before or self.defaults(self.loaded.pair)

    def defaults(self, pair: Pair) -> ChatSettings:
        """The settings of `pair`; of the first one that is loaded, after those of the command line."""
        launch = self.launch if self.loaded.pair is None else None
        strategy = (launch and launch.strategy) or pair.strategy
        return replace(
            self.settings,
            strategy=strategy,
            draft_length=(launch and launch.draft_length) or pair.lengths.get(strategy),
            acceptance=(launch and launch.acceptance) or pair.acceptance,
            sampling=(launch and launch.sampling) or pair.sampling,
        )

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

    @property
    def way_out(self) -> str:
        """Advice for a chat that does not fit the context, to be added to a sentence."""
        if self.settings.limits.context != "refuse" or not self.conversation.turns:
            return ""
        return ". /new starts a new chat; /context drop-oldest leaves out the oldest turns"

    def ask(self, running: Running) -> None:
        """Have the engine begin a reply that waited for the pair."""
        speculation = self.settings.speculation if running is self.running else running.reply.speculation
        if self.loaded.lack(speculation.strategy):
            speculation = Speculation.of("plain", None, speculation.acceptance)
        self.replies.ask(running, speculation)

    def _view(self) -> dict[str, Any]:
        return {"pair": self.wanted or self.loaded.id, "settings": as_data(self.settings)}
