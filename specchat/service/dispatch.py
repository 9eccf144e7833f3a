"""The engine's events, applied to a service."""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Literal

from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import (
    AwaitingClient,
    AwaitingServer,
    Changed,
    Counted,
    Elsewhere,
    Event,
    Failed,
    Finished,
    Loaded,
    Loading,
    PromptProgress,
    Started,
    Step,
)
from specchat.engine.protocol.pair_info import PairInfo
from specchat.service.replies import Running
from specchat.service.state import ServiceState

UpdateKind = Literal[
    "loading", "loaded", "load-failed", "reply", "ended", "answered", "called", "counted", "notice", "elsewhere"
]


@dataclass(frozen=True)
class Update:
    """A change that clients show; "answered" is of a chat that is not open, "called" of a reply that calls tools,
    "elsewhere" of a reply for another program.

    `message` is a sentence for people; `prompt` can be asked again.
    """

    kind: UpdateKind
    message: str = ""
    prompt: str = ""
    event: Event | None = field(default=None, compare=False, repr=False)
    """The engine's event behind it."""


class Dispatch:
    """Applies events to `state`."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._short: PairInfo | None = None
        """The latest pair whose draft was said to be too short."""

    def poll(self) -> list[Update]:
        """The events since the last call."""
        return self.take(self._state.engine.poll())

    def take(self, events: list[Event]) -> list[Update]:
        """Apply events in their order."""
        self._state.loaded.polled()
        updates = [update for event in events for update in self._event(event)]
        self._state.replies.save()
        return updates

    def _event(self, event: Event) -> Iterator[Update]:
        match event:
            case Loading():
                self._state.loaded.progress(event)
                yield Update("loading", event=event)
            case Loaded():
                yield self._loaded(event)
            case Elsewhere():
                if self._state.others.take(event):
                    yield Update("elsewhere", event=event)
            case Failed(kind="died"):
                yield from self._died(event)
            case Failed(id=None):
                self._state.loaded.failed(event.message)
                yield self._load_failed(event)
            case _ if self._state.listeners.notify(event):
                if isinstance(event, Counted | Failed):
                    yield Update("counted")
            case AwaitingClient():
                words = f"The engine answers {one_line(event.client, 20)} (process {event.pid}) first."
                yield Update("notice", words, event=event)
            case AwaitingServer():
                yield Update("notice", clean(event.why), event=event)
            case Failed():
                yield from self._failed(event)
            case PromptProgress() | Started() | Step() | Changed() | Finished():
                yield from self._reply_event(event)

    def _reply_event(self, event: PromptProgress | Started | Step | Changed | Finished) -> Iterator[Update]:
        if isinstance(event, Started):
            self._state.loaded.answers()
        running = self._state.replies.take(event)
        if running is None:
            return
        shown = running.chat is self._state.conversation
        if isinstance(event, Finished):
            yield self._finished(running, event, shown)
        elif shown:
            if isinstance(event, Started):
                yield from self._explained(running)
            yield Update("reply", event=event)

    def _explained(self, running: Running) -> Iterator[Update]:
        """Sentences on parts of the chat that the pair cannot be given."""
        loaded = self._state.loaded
        if running.chat.system and (words := loaded.about_system()):
            yield Update("notice", words)
        if self._state.tools.used(running.chat.key) and (words := loaded.about_tools()):
            yield Update("notice", words)

    def _finished(self, running: Running, event: Finished, shown: bool) -> Update:
        uncalled, title = "", f"“{one_line(running.chat.title, 40)}”"
        if event.tool_calls and event.reason == "stop":
            uncalled = self._state.begin_calls(running)
            if not uncalled:
                calls = self._state.calls.of(running.chat.key)
                asks = calls is not None and calls.asked is not None and not shown
                return Update("called", f"{title} asks for a call of a tool" if asks else "", event=event)
        answered = f"{title} is answered" if event.reason != "cancelled" else ""
        missed = event.unreadable_calls
        unread = f"{missed} call{'s' * (missed != 1)} of tools could not be read" if missed else ""
        words = (uncalled or unread or self._undrafted(running.reply)) if shown else answered
        return Update("ended" if shown else "answered", words, event=event)

    def _undrafted(self, reply: Reply) -> str:
        """A sentence, once for each pair, where a chat is too long for its draft."""
        info = self._state.loaded.info
        if info is None or info is self._short or not reply.steps:
            return ""
        words = info.undrafted(reply.record.speculation.strategy, reply.steps[-1].context_used)
        self._short = info if words else self._short
        return words

    def _loaded(self, event: Loaded) -> Update:
        state = self._state
        state.loaded.loaded(event.info)
        state.keep_pair()
        state.others.loaded()
        unread = state.saved.loaded()
        reason = state.settle() if not state.wanted else ""
        for running in state.replies.all:
            if not running.reply.requested:
                state.begin(running)
        words = (clean(event.info.notes.warning), f"{reason}; decoding plainly" if reason else unread)
        return Update("loaded", " ".join(filter(None, words)), event=event)

    def _died(self, event: Failed) -> Iterator[Update]:
        death = self._state.loaded.died(event.message)
        if death == "known":
            return
        self._state.listeners.fail(event)
        self._state.others.lost()
        if death == "back":
            yield self._load_failed(event)
        elif death == "last":
            ended = self._fail_all(event)
            yield from ended
            prompt = "".join(update.prompt for update in ended)
            words = f"the engine keeps ending: {self._state.loaded.error}"
            yield Update("load-failed", words, prompt, event)
        else:
            yield from self.fail_begun(event)
            yield Update("loading", "the engine ended; starting again", event=event)

    def _load_failed(self, event: Failed) -> Update:
        """End the replies that waited for the pair; the pair before is used again where there is one."""
        state, message = self._state, clean(event.message)
        if state.loaded.loading is not None:
            name = state.loaded.name
            message = (
                f"{message.rstrip('.')}. {f'Still using {name}' if state.loaded.used else f'Using {name} instead'}."
            )
            state.take_back()  # before replies end, which saves the chat with its pair
        prompts = [ended.prompt for ended in self._fail_all(event)]
        return Update("load-failed", message, "".join(prompts), event)

    def fail_begun(self, event: Failed) -> list[Update]:
        """End the reply that the engine had begun; the others are begun once it is back."""
        self._state.replies.wait_for_engine()
        return self._fail_all(event, requested=True)

    def _fail_all(self, event: Failed, requested: bool = False) -> list[Update]:
        """End all replies, or those that were `requested`."""
        replies = [running.reply for running in self._state.replies.all]
        each = [replace(event, id=reply.id) for reply in replies if reply.requested or not requested]
        return [update for failed in each for update in self._failed(failed)]

    def _failed(self, event: Failed) -> Iterator[Update]:
        state, running = self._state, self._state.replies.fail(event)
        if running is None:
            return
        reply, prompt = running.reply, ""
        words = reply.end.error
        if running.chat is not state.conversation:
            words = f"“{one_line(running.chat.title, 40)}”: {reply.end.error}"
        elif not reply.raw and running.turn.reply in (reply, None):
            if not state.prefill and reply.start.prefill != state.next_prefill:
                state.prefill = reply.start.prefill
            words += state.way_out.removeprefix(".") if event.kind == "context" else ""
            prompt = running.turn.prompt
        yield Update("ended", words, prompt, event)
