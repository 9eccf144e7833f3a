"""The chat's state and its dealings with the engine: what is loaded, which reply runs, what may be asked next."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from specchat.attachments import Attachment, with_attachments
from specchat.chat.reply import Reply
from specchat.chat.tree import Conversation, Turn
from specchat.clean import clean, one_line
from specchat.engine.api import (
    Cancel,
    Change,
    Changed,
    Count,
    Counted,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Loaded,
    Loading,
    PairInfo,
    Started,
    Stats,
    Step,
    StrategyStatus,
)
from specchat.engine.port import EnginePort
from specchat.engine.strategies import STRATEGIES
from specchat.tui.composing.personas import persona_of
from specchat.tui.insight.diagnosis import Advisor, Diagnosis
from specchat.tui.insight.ledger import Ledger
from specchat.tui.insight.race import Race, rival
from specchat.tui.launch import Launch, Pair
from specchat.tui.settings import ChatSettings, as_data, from_data
from specchat.tui.shown_chat import CannotOpen, ShownChat

_DEATHS = 2
"""Deaths without a successful load between them after which the engine is not started again by itself."""


@dataclass(frozen=True)
class Update:
    """Something the screen must know. `message` is a sentence for people; `prompt` goes back into the prompt box."""

    kind: Literal["loading", "loaded", "load-failed", "reply", "ended", "counted"]
    message: str = ""
    prompt: str = ""


class Session:
    """One chat at a time over one engine. Requests that make no sense now are answered with a sentence, not raised."""

    def __init__(self, engine: EnginePort, launch: Launch) -> None:
        self.engine = engine
        self.launch = launch
        self.chat = ShownChat(launch, self._view)
        self.settings = ChatSettings(seed=launch.seed, limits=launch.limits)
        self.pair: Pair | None = None
        self.info: PairInfo | None = None
        self.loading: Loading | None = None
        self.load_error = ""
        self.reply: Reply | None = None
        """The reply being written or waited for."""
        self.stopping = False
        self.wanted = ""
        """The pair of the chat that is shown, where another is loaded; empty when it is the loaded one."""
        self.warning = ""
        """What was wrong with saving the last prompt, in a sentence."""
        self.race: Race | None = None
        """The latest race that was not ended; its events never reach the conversation."""
        self.ledger = Ledger()
        self._advisor = Advisor(self.ledger)
        self.prefill = ""
        """What the next reply is to begin with, once."""
        self.counted: Counted | None = None
        self._counted_text = ""
        self._count: tuple[int, str] | None = None
        self._replying = self.conversation
        """The chat that the running reply belongs to."""
        self._ids = count(1)
        self._deleted: list[str] = []
        """Keys of the chats that were deleted, the latest last."""
        self._deaths = 0
        self._restarted = False

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
    def busy(self) -> bool:
        """Whether events are to be expected."""
        return self.loading is not None or self.reply is not None or self._count is not None or self.racing

    @property
    def racing(self) -> bool:
        return self.race is not None and self.race.running

    @property
    def last_reply(self) -> Reply | None:
        """The running reply, or the latest one."""
        if self.reply is not None:
            return self.reply
        return next((turn.reply for turn in reversed(self.conversation.turns) if turn.reply), None)

    @property
    def diagnosis(self) -> Diagnosis:
        """Whether drafting pays, and what would pay more."""
        lengths = self.pair.lengths if self.pair else {}
        return self._advisor.diagnose(self.last_reply, self.info, self.settings.speculation, lengths)

    # Pairs

    def load(self, pair: Pair, settings: ChatSettings | None = None) -> None:
        """Load `pair`, stopping a running reply; its defaults replace the settings that the command line left open.

        Starts the engine where none runs. With `settings` the replies are made with these.
        """
        if self.reply is not None:
            self.stop()
        self.end_race()
        launch = self.launch if self.pair is None else None
        self.pair, self.info, self.load_error = pair, None, ""
        strategy = (launch and launch.strategy) or pair.strategy
        self.settings = replace(
            self.settings,
            strategy=strategy,
            draft_length=(launch and launch.draft_length) or pair.lengths.get(strategy),
            acceptance=(launch and launch.acceptance) or pair.acceptance,
            sampling=(launch and launch.sampling) or pair.sampling,
        )
        self.settings, self.wanted = settings or self.settings, ""
        self.loading, self._deaths = Loading("starting the engine"), 0
        self.engine.start()
        self.engine.send(Load(pair.spec))

    # Replies

    def refusal(self, content: str) -> str:
        """Why `content`, a prompt with what is attached to it, cannot be sent now; empty when it can."""
        if self.reply is not None:
            return "a reply is running: esc stops it; your text is kept"
        if self.racing:
            return "a race is running: esc ends it; your text is kept"
        if self.info is None and self.loading is None:
            return "no model is loaded: f3 chooses one; your text is kept"
        if self.too_long(content) and self.counted is not None:
            tokens, context = self.counted.tokens, self.counted.context
            return f"too long: {tokens:,} tokens, the context holds {context:,}; your text is kept"
        return ""

    def too_long(self, content: str) -> bool:
        """Whether `content` is known not to fit the context."""
        return (
            self.counted is not None and self._counted_text == content and self.counted.tokens >= self.counted.context
        )

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
        """Stop the running reply at its next step; asked twice, by restarting the engine."""
        reply = self.reply
        if reply is None:
            return "nothing is running"
        if self.stopping:
            self._end(reply, Failed(reply.id, "died", "stopped by restarting the engine"))
            self._restart()
            return "restarting the engine"
        if reply.state == "queued":
            reply.finished(Finished(reply.id, "cancelled", "", (), Stats()))
            self._close(reply)
            return ""
        self.stopping = True
        self.engine.send(Cancel(reply.id))
        return ""

    def new_chat(self) -> None:
        """Start over with an empty conversation, stopping a running reply."""
        self._leave()
        self.chat.start()

    def open_chat(self, key: str) -> str:
        """Show a saved chat with the settings it had, stopping a running reply; gives a refusal.

        Its pair is loaded when something is written, not before: many chats may only be read.
        """
        self._leave()
        try:
            view = self.chat.open(key)
        except CannotOpen as error:
            return str(error)
        wanted = str(view.get("pair") or "")
        self.wanted = wanted if self.pair is None or wanted != self.pair.spec.id else ""
        settings = from_data(view.get("settings"))
        if settings is not None:
            status = self.strategy_status(settings.strategy)
            fits = status is None or status.available
            self.settings = settings if fits else replace(settings, strategy="plain", draft_length=None)
        return ""

    def delete_chat(self, key: str) -> threading.Event:
        """Delete a saved chat; the open one gives way to an empty one. The event is set once that is saved."""
        if key == self.conversation.key:
            self.new_chat()
        self._deleted.append(key)
        return self.chat.saving.store.delete(key)

    def undelete_chat(self) -> threading.Event | None:
        """Bring back the chat deleted last; None when none was."""
        return self.chat.saving.store.restore(self._deleted.pop()) if self._deleted else None

    def show_branch(self, step: int, turn: Turn | None = None) -> str:
        """Show another version of a prompt or reply; gives a refusal."""
        return "a reply is running: esc stops it" if self.reply is not None else self.chat.show_branch(step, turn)

    def _leave(self) -> None:
        if self.reply is not None and not self.stopping:
            self.stop()
        self.counted, self._counted_text, self.wanted = None, "", ""

    def _view(self) -> dict[str, Any]:
        pair = self.wanted or (self.pair.spec.id if self.pair else "")
        return {"pair": pair, "settings": as_data(self.settings)}

    def change(self, settings: ChatSettings) -> None:
        """Use `settings` from now on: speculation at the running reply's next step, the rest from the next reply."""
        before, self.settings = self.settings, settings
        reply = self.reply
        if reply is not None and reply.state != "queued" and settings.speculation != before.speculation:
            self.engine.send(Change(reply.id, settings.speculation))

    def choose_strategy(self, name: str) -> str:
        """Draft with another strategy at its own length; gives the reason where the loaded pair cannot."""
        status = self.strategy_status(name)
        if status is not None and not status.available:
            return f"{STRATEGIES[name].title} cannot be used here: {clean(status.reason)}"
        length = self.pair.lengths.get(name) if self.pair else None
        self.change(replace(self.settings, strategy=name, draft_length=length))
        return ""

    def strategy_status(self, name: str) -> StrategyStatus | None:
        """What the loaded pair says about a strategy; None when nothing is loaded or it does not know it."""
        return next((s for s in self.info.strategies if s.name == name), None) if self.info else None

    def _answer(self, turn: Turn, *, fresh_seed: bool = False) -> None:
        settings = replace(self.settings, seed=None) if fresh_seed else self.settings
        name = self.pair.spec.name if self.pair else ""
        reply = Reply(next(self._ids), one_line(name, 40), settings.sampling_with(None), settings.speculation)
        reply.prefill, self.prefill = self.next_prefill, ""
        self._replying = self.conversation
        self._replying.answer(turn, reply)
        self.chat.saving.begun(self._replying, reply)
        self.reply, self.stopping = reply, False
        if self.info is not None:
            self._ask(reply)

    def _ask(self, reply: Reply) -> None:
        if reply.turn is None:
            return
        reply.state = "reading"
        reply.speculation = self.settings.speculation
        reply.plain_tokens_per_second = self.info.plain_tokens_per_second if self.info else 0.0
        messages = self._replying.messages(reply.turn)
        limits = self.settings.limits
        self.engine.send(Generate(reply.id, messages, reply.sampling, limits, reply.speculation, reply.prefill))

    # Races

    def start_race(self) -> str:
        """Answer the last prompt again, plainly and then drafted; gives the refusal if there is one."""
        turn = self.conversation.last
        if turn is None or turn.reply is None:
            return "ask something first: a race answers the last prompt again"
        if self.reply is not None or self.racing:
            return "a reply is running: esc stops it"
        if self.info is None or self.pair is None:
            return "no model is loaded: f3 chooses one"
        speculation = rival(self.settings.speculation, self.pair.strategy, self.pair.lengths, self.info)
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
        if self.info is None or self.reply is not None or self.racing:
            return False
        request = next(self._ids)
        self._count = (request, content)
        messages = self.conversation.messages(prompt=content)
        self.engine.send(Count(request, messages, self.settings.limits, self.next_prefill))
        return True

    # Events

    def poll(self) -> list[Update]:
        """What happened since the last call."""
        updates: list[Update] = []
        self._restarted = False
        for event in self.engine.poll():
            updates += self._event(event)
        if self.reply is not None:
            self.chat.saving.written(self._replying, self.reply)
        return updates

    def check(self) -> list[Update]:
        """Like `poll`, for now and then while idle: notices a worker that died."""
        if self.engine.alive or self.info is None:
            return []
        return self.poll() or list(self._died(Failed(None, "died", "the engine is gone")))

    def _event(self, event: Event) -> Iterator[Update]:
        if self.race is not None and self.race.take(event):
            return
        match event:
            case Loading():
                self.loading = Loading(one_line(event.what), event.fraction)
                yield Update("loading")
            case Loaded():
                yield self._loaded(event.info)
            case Counted():
                if self._count is not None and event.id == self._count[0]:
                    self.counted, self._counted_text, self._count = event, self._count[1], None
                    yield Update("counted")
            case Failed(kind="died"):
                yield from self._died(event)
            case Failed():
                yield from self._failed(event)
            case Started() | Step() | Changed() | Finished():
                yield from self._reply_event(event)

    def _reply_event(self, event: Started | Step | Changed | Finished) -> Iterator[Update]:
        reply = self.reply
        if reply is None or event.id != reply.id:
            return
        match event:
            case Started():
                reply.started(event)
            case Step():
                reply.step(event)
            case Changed():
                reply.changed(event)
            case Finished():
                reply.finished(event)
                self._close(reply)
                yield Update("ended")
                return
        yield Update("reply")

    def _loaded(self, info: PairInfo) -> Update:
        self.info, self.loading, self.load_error, self._deaths = info, None, "", 0
        message = ""
        status = self.strategy_status(self.settings.strategy)
        if status is not None and not status.available:
            message = f"{STRATEGIES[status.name].title} cannot be used here: {clean(status.reason)}; decoding plainly"
            self.settings = replace(self.settings, strategy="plain", draft_length=None)
        if self.reply is not None and self.reply.state == "queued":
            self._ask(self.reply)
        return Update("loaded", message)

    def _failed(self, event: Failed) -> Iterator[Update]:
        if self._count is not None and event.id == self._count[0]:
            self._count = None
            return
        if self.reply is not None and event.id == self.reply.id:
            yield self._end(self.reply, event)
        elif event.id is None:
            self.loading, self.load_error = None, clean(event.message)
            prompt = ""
            if self.reply is not None:
                prompt = self._end(self.reply, replace(event, id=self.reply.id)).prompt
            yield Update("load-failed", self.load_error, prompt)

    def _died(self, event: Failed) -> Iterator[Update]:
        if self._restarted:  # the same death, told once more by a request made before the restart
            return
        self._deaths += 1
        self._count = None
        self.info = None
        prompt = ""
        if self.reply is not None:
            ended = self._end(self.reply, event)
            prompt = ended.prompt
            yield ended
        if self._deaths >= _DEATHS:
            self.loading, self.load_error = None, clean(event.message)
            yield Update("load-failed", f"the engine keeps ending: {self.load_error}", prompt)
            return
        self._restart()
        yield Update("loading", f"the engine ended ({clean(event.message)}); starting it again")

    def _restart(self) -> None:
        self._restarted = True
        self.info, self.loading = None, Loading("starting the engine again")
        self.engine.restart()

    def _end(self, reply: Reply, event: Failed) -> Update:
        """Close a reply that failed. Without any text, its prompt goes back and an earlier reply shows again."""
        reply.failed(event)
        turn = reply.turn
        if turn is not None and not reply.raw and len(turn.replies) > 1:
            self._replying.drop(turn, reply)
            self.chat.saving.dropped(reply)
            self.reply, self.stopping = None, False
            return Update("ended", reply.error)
        self._close(reply)
        if reply.raw or turn is None:
            return Update("ended", reply.error)
        if not self.prefill and reply.prefill != self.next_prefill:
            self.prefill = reply.prefill
        return Update("ended", reply.error, turn.prompt)

    def _close(self, reply: Reply) -> None:
        self.reply, self.stopping = None, False
        self.ledger.add(reply)
        self.chat.saving.ended(self._replying, reply)
