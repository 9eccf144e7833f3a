"""The state of a chat service: its pair, its open chat, its settings, and the replies that run."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.config.catalog import Pair
from specchat.config.personas import Persona, persona_of
from specchat.config.used_pairs import UsedPairs
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Speculation, Tool
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Change
from specchat.mcp_tools.servers import ToolServers
from specchat.service.calls import MOST_ROUNDS, CallRound, Calls
from specchat.service.chat_tools import ChatTools
from specchat.service.listeners import Listeners
from specchat.service.loaded_pair import LoadedPair
from specchat.service.open_chat import OpenChat
from specchat.service.others import OtherReplies
from specchat.service.prompt_count import PromptCount
from specchat.service.replies import Replies, Running
from specchat.service.saved_replies import SavedReplies
from specchat.service.settings import ChatSettings, Preferences, as_data

CHARACTERS_A_TOKEN = 3
"""At least, in most texts."""


@dataclass(frozen=True)
class ServiceOptions:
    """The parts of a chat service that clients choose.

    Attributes:
        fallback: the pair to load where the first one cannot be.
        personas: a chat with the system prompt of one begins its replies as that says.
        copies_saved: let drafts copy from the replies of saved chats.
        saves_settings: save the settings with each chat, for when it is opened again.
        restarts: start an engine again that died.
        ended: called with each reply that has ended.
        servers: the servers whose tools chats may use.
        uses_tools: use them in new chats.
        watches: hear of the replies of other programs that share the engine.
        used: where loaded pairs are kept, so that their chats find them again.
    """

    fallback: Pair | None = None
    personas: Sequence[Persona] = ()
    copies_saved: bool = False
    saves_settings: bool = False
    restarts: bool = False
    ended: Callable[[Reply], object] = lambda _: None
    servers: ToolServers | None = None
    uses_tools: bool = False
    watches: bool = False
    used: UsedPairs | None = None


NO_OPTIONS = ServiceOptions()


class ServiceState:
    """The parts of a service work on this. `ChatService` has the requests of clients."""

    def __init__(self, engine: EnginePort, store: Store, preferences: Preferences, options: ServiceOptions) -> None:
        """Serve `engine`, and the chats in `store`."""
        self.engine = engine
        self.preferences = preferences
        self.settings = ChatSettings(seed=preferences.seed, limits=preferences.limits)
        self.chat = OpenChat(store, preferences.system, self._view)
        self.loaded = LoadedPair(engine, options.fallback, options.restarts)
        self.chat_pair = ""
        """The id of the pair that alone answers in the open chat; empty where that is the loaded one."""
        self._chat_pair_name = ""
        self._chosen = ""
        """The id of the pair that the user chose and that is being loaded."""
        self._bound_before = ("", "")
        """The open chat, and the pair that answered in it before another was chosen."""
        self.others = OtherReplies(engine, options.watches)
        self.listeners = Listeners()
        self.replies = Replies(engine, self.chat.saving, options.ended)
        self.saved = SavedReplies(engine, store, options.copies_saved)
        self.tools = ChatTools(options.servers, usual=options.uses_tools)
        self.calls = Calls(self.tools)
        self.prompt_count = PromptCount(self._counted_with)
        self.prefill = ""
        """The beginning of the next reply, used once."""
        self._options = options
        self._before: ChatSettings | None = None
        self._put = self.settings
        """The settings of the pair before, and those that the latest load replaced them with."""

    @property
    def wanted(self) -> str:
        """The id of the open chat's pair while another is loaded; empty where the loaded one answers."""
        return self.chat_pair if self.chat_pair != self.loaded.id else ""

    @property
    def wanted_name(self) -> str:
        """The same pair's name for people, on one line."""
        return one_line(self._chat_pair_name or self.wanted, 40) if self.wanted else ""

    @property
    def pair_view(self) -> dict[str, str]:
        """The pair that answers in the open chat, as views keep it."""
        return {"pair": self.wanted or self.loaded.id, "pair_name": self.wanted_name or self.loaded.name}

    def bind(self, view: Mapping[str, Any]) -> None:
        """Have the pair that a chat was kept with answer in it, which is open now."""
        self.chat_pair, name = str(view.get("pair") or ""), view.get("pair_name")
        self._chat_pair_name = name if isinstance(name, str) else ""

    @property
    def room_for_files(self) -> int:
        """Characters of files that go along whole: those of half of the context's tokens, as most texts have them."""
        info = self.loaded.info
        return info.context * CHARACTERS_A_TOKEN // 2 if info is not None and info.context else sys.maxsize

    @property
    def conversation(self) -> Conversation:
        return self.chat.conversation

    def _counted_with(self) -> object:
        """Everything but the content that changes a count of tokens."""
        editing = self.chat.editing
        return self.settings.limits, self.conversation.system, self.loaded.id, editing.key if editing else ""

    @property
    def next_prefill(self) -> str:
        """The beginning of the next reply: the one set for once, else the persona's."""
        persona = persona_of(self.conversation.system, self._options.personas)
        return self.prefill or (persona.prefill if persona else "")

    # Running replies

    @property
    def running(self) -> Running | None:
        """The reply that is written or waited for in the open chat."""
        return self.replies.of(self.conversation.key)

    @property
    def reply(self) -> Reply | None:
        """The reply being written or waited for in the open chat."""
        return self.running.reply if self.running is not None else None

    @property
    def stopping(self) -> bool:
        """True if the reply that runs here is to stop."""
        return self.running is not None and self.running.stopping

    @property
    def calling(self) -> CallRound | None:
        """The calls of the open chat's last reply, while they have no results."""
        return self.calls.of(self.conversation.key)

    @property
    def at_work(self) -> bool:
        """True while the open chat's last prompt is being answered, its calls of tools included."""
        return self.running is not None or self.calling is not None

    @property
    def elsewhere(self) -> Conversation | None:
        """The chat that the engine writes in, unless that is the open one."""
        first = next(iter(self.replies.all), None)
        return first.chat if first is not None and first is not self.running else None

    @property
    def last_reply(self) -> Reply | None:
        """The reply that runs in the open chat, or its latest one."""
        if self.running is not None:
            return self.running.reply
        return next((turn.reply for turn in reversed(self.conversation.turns) if turn.reply), None)

    # Settings

    def put_settings(self, settings: ChatSettings) -> None:
        """Use these with a pair that is to be loaded."""
        if self.loaded.info is not None:
            self._before = self.settings
        self.settings = self._put = settings

    def put_pair(self, pair: Pair, *, chosen: bool) -> None:
        """Have `pair`, which is to be loaded, answer in the open chat."""
        self._chosen = pair.id if chosen else ""
        self._bound_before, self.chat_pair = (self.conversation.key, self.chat_pair), ""

    def keep_pair(self) -> None:
        """Keep the pair that was loaded, for chats that are opened again, and for the next start if it was chosen."""
        pair = self.loaded.pair
        if self._options.used is not None and pair is not None:
            self._options.used.keep(pair, chosen=pair.id == self._chosen)

    def take_back(self) -> None:
        """Use the pair before, which is loaded after all, with its settings unless they were changed since.

        A chat that waits for its own pair goes on waiting with its own settings.
        """
        key, bound = self._bound_before
        if key == self.conversation.key and not self.chat_pair:
            self.chat_pair = bound
        if self.settings == self._put and self.loaded.pair is not None and not self.wanted:
            self.settings = self._before or self.defaults(self.loaded.pair)

    def defaults(self, pair: Pair) -> ChatSettings:
        """The settings of `pair`; of the first one that is loaded, after the user's preferences."""
        chosen = self.preferences if self.loaded.pair is None else Preferences()
        kept = self.settings
        return replace(chosen.settings(pair), seed=kept.seed, limits=kept.limits, template=kept.template)

    def change(self, settings: ChatSettings) -> None:
        """Use `settings` from now on: speculation at the running reply's next step, the rest from the next reply."""
        before, self.settings = self.settings, settings
        reply = self.reply
        if reply is not None and reply.requested and settings.speculation != before.speculation:
            self.engine.send(Change(reply.id, settings.speculation))

    def choose_strategy(self, name: str) -> str:
        """Draft with another strategy at its own length; returns the reason where the loaded pair cannot."""
        if reason := self.loaded.unsupported(name):
            return reason
        self.change(replace(self.settings, strategy=name, draft_length=self.loaded.lengths.get(name)))
        return ""

    def settle(self) -> str:
        """Decode plainly where the loaded pair cannot draft as is set; returns the reason."""
        reason = self.loaded.unsupported(self.settings.strategy)
        if reason:
            self.settings = replace(self.settings, strategy="plain", draft_length=None)
        return reason

    def begin(self, running: Running) -> None:
        """Have the engine begin a reply that waited for the pair, once the tools of its chat are known."""
        if self.loaded.calls_tools and not self.tools.ready(running.chat.key):
            running.reply.state = "preparing"
            return
        speculation = self.settings.speculation if running is self.running else running.reply.speculation
        if self.loaded.unsupported(speculation.strategy):
            speculation = Speculation.of("plain", None, speculation.acceptance)
        template = self.loaded.arguments(running.settings.template)
        self.replies.ask(running, speculation, template, self.tools_for(running.chat.key))

    def tools_for(self, chat: str) -> tuple[Tool, ...]:
        """The tools that the loaded model may call in a chat."""
        return self.tools.for_model(chat) if self.loaded.calls_tools else ()

    def begin_calls(self, running: Running) -> str:
        """Ask for the calls that a reply makes, and make them; returns a refusal."""
        if not self.tools.of(running.chat.key).on:
            return "the model called a tool, but tools are off in this chat"
        if not self.tools.ready(running.chat.key):
            return "the servers of the tools are starting: /continue goes on once they are up"
        if running.round >= MOST_ROUNDS:
            return f"{MOST_ROUNDS} replies with calls of tools in a row: /continue goes on"
        context = self.loaded.info.context if self.loaded.info is not None else 0
        self.calls.begin(running.chat, running.reply, running.settings, running.round + 1, context)
        return ""

    @property
    def way_out(self) -> str:
        """Advice for a chat that does not fit the context, to be added to a sentence."""
        if self.settings.limits.context != "refuse" or not self.conversation.turns:
            return ""
        return ". /new starts a new chat; /context drop-oldest leaves out the oldest turns"

    def _view(self) -> dict[str, Any]:
        view: dict[str, Any] = {**self.pair_view}
        if self._options.saves_settings:
            view["settings"] = as_data(self.settings)
        if (choices := self.tools.of(self.conversation.key)) != self.tools.usual:
            view["tools"] = choices.data
        return view
