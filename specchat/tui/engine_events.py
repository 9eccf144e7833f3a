"""The engine's events, applied to the session."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.engine.events import Changed, Event, Failed, Finished, Loaded, Loading, Started, Step
from specchat.engine.pair import PairInfo
from specchat.tui.racing import Racing
from specchat.tui.session_state import SessionState

UpdateKind = Literal["loading", "loaded", "load-failed", "reply", "ended", "answered", "counted", "told"]
_CUT = {
    "length": "the reply reached the token limit: /continue goes on",
    "context": "the context is full, so the reply ends here: /new starts a new chat",
}
"""What to do about a reply that did not come to its end, by the reason."""


@dataclass(frozen=True)
class Update:
    """Something the screen must know; "answered" is of a chat that is not shown.

    `message` is a sentence for people; `prompt` goes back into the prompt box.
    """

    kind: UpdateKind
    message: str = ""
    prompt: str = ""


class EngineEvents:
    """Belongs to a session."""

    def __init__(self, session: SessionState, racing: Racing) -> None:
        self._session = session
        self._racing = racing
        self._short: PairInfo | None = None
        """The pair of which it was said that its draft is too short."""

    def poll(self) -> list[Update]:
        """The events since the last call."""
        session = self._session
        session.loaded.polled()
        updates = [update for event in session.engine.poll() for update in self._event(event)]
        session.replies.save()
        return updates

    def check(self) -> list[Update]:
        """Like `poll`, for now and then while idle: notices a worker that died."""
        session = self._session
        if session.engine.alive or session.loaded.info is None:
            return []
        return self.poll() or list(self._died(Failed(None, "died", "the engine is gone")))

    def _event(self, event: Event) -> Iterator[Update]:
        if self._racing.take(event):
            return
        if self._session.prompt_count.take(event):
            yield Update("counted")
            return
        match event:
            case Loading():
                self._session.loaded.told(event)
                yield Update("loading")
            case Loaded():
                yield self._loaded(event.info)
            case Failed(kind="died"):
                yield from self._died(event)
            case Failed(id=None):
                self._session.loaded.failed(event.message)
                yield self._load_failed(event)
            case Failed():
                yield from self._failed(event)
            case Started() | Step() | Changed() | Finished():
                yield from self._reply_event(event)

    def _reply_event(self, event: Started | Step | Changed | Finished) -> Iterator[Update]:
        running = self._session.replies.take(event)
        if running is None:
            return
        shown = running.chat is self._session.conversation
        if isinstance(event, Finished):
            cut = _CUT.get(event.reason, "") or self._undrafted(running.reply)
            answered = f"“{one_line(running.chat.title, 40)}” is answered" if event.reason != "cancelled" else ""
            yield Update("ended", cut) if shown else Update("answered", answered)
        elif shown:
            if isinstance(event, Started) and running.chat.system and (words := self._session.loaded.about_system()):
                yield Update("told", words)
            yield Update("reply")

    def _undrafted(self, reply: Reply) -> str:
        """That the draft of the loaded pair is too short for a chat, once."""
        info = self._session.loaded.info
        if info is None or info is self._short or not reply.steps:
            return ""
        words = info.undrafted(reply.record.speculation.strategy, reply.steps[-1].context_used)
        self._short = info if words else self._short
        return words

    def _loaded(self, info: PairInfo) -> Update:
        session = self._session
        session.loaded.loaded(info)
        unread = session.saved.loaded()
        lack = session.settle() if not session.wanted else ""
        for running in session.replies.all:
            if running.reply.state == "queued":
                session.ask(running)
        told = (clean(info.warning), f"{lack}; decoding plainly" if lack else unread)
        return Update("loaded", " ".join(filter(None, told)))

    def _died(self, event: Failed) -> Iterator[Update]:
        death = self._session.loaded.died(event.message)
        if death == "told":
            return
        self._session.prompt_count.lost()
        if death == "back":
            yield self._load_failed(event)
        elif death == "last":
            ended = self._fail_all(event)
            yield from ended
            prompt = "".join(update.prompt for update in ended)
            yield Update("load-failed", f"the engine keeps ending: {self._session.loaded.error}", prompt)
        else:
            yield from self.fail_begun(event)
            yield Update("loading", f"the engine ended ({clean(event.message)}); starting it again")

    def _load_failed(self, event: Failed) -> Update:
        """Replies that waited for the pair get no answer; the pair before is used again where there is one."""
        session = self._session
        prompts = [ended.prompt for ended in self._fail_all(event)]
        message = clean(event.message)
        if session.loaded.loading is not None:
            message = f"{message.rstrip('.')}. Still using {session.loaded.name}."
            session.take_back_settings()
        return Update("load-failed", message, "".join(prompts))

    def fail_begun(self, event: Failed) -> list[Update]:
        """End the reply that the engine was asked to write; those that waited are asked for once it is back."""
        self._session.replies.wait_for_engine()
        return self._fail_all(event, but="queued")

    def _fail_all(self, event: Failed, but: str = "") -> list[Update]:
        replies = [running.reply for running in self._session.replies.all]
        each = [replace(event, id=reply.id) for reply in replies if reply.state != but]
        return [update for failed in each for update in self._failed(failed)]

    def _failed(self, event: Failed) -> Iterator[Update]:
        session, running = self._session, self._session.replies.fail(event)
        if running is None:
            return
        reply = running.reply
        if running.chat is not session.conversation:
            yield Update("ended", f"“{one_line(running.chat.title, 40)}”: {reply.error}")
        elif reply.raw or running.turn.reply not in (reply, None):
            yield Update("ended", reply.error)
        else:
            if not session.prefill and reply.prefill != session.next_prefill:
                session.prefill = reply.prefill
            way_out = session.way_out.removeprefix(".") if event.kind == "context" else ""
            yield Update("ended", reply.error + way_out, running.turn.prompt)
