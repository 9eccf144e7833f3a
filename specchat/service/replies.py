"""The replies that have not ended, at most one a chat. The engine writes a few of them in turns."""

from collections.abc import Callable

from specchat.chat.saving import Saving
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Changed, Failed, Finished, PromptProgress, Started, Step
from specchat.engine.protocol.options import Arguments, Grammar, Speculation, Tool
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.protocol.stats import Stats
from specchat.service.settings import ChatSettings

_REFUSALS = ("context", "request")
"""Failures of a request, not of the engine."""
LOOK_STEPS = 16
"""Steps between two looks for repeated text."""


@dataclass
class Running:
    """A reply and the chat it is written in; it is the reply to round number `round` of tool calls after a prompt.

    `grammar` holds its answer; `repeats` is True while its text repeats itself.
    """

    chat: Conversation
    turn: Turn
    reply: Reply
    settings: ChatSettings
    round: int = 0
    grammar: Grammar | None = None
    stopping: bool = False
    repeats: bool = False


class Replies:
    """Requests replies, builds them up from their events, and saves them. `ended` gets each at its end."""

    def __init__(self, engine: EnginePort, saving: Saving, ended: Callable[[Reply], object]) -> None:
        self._engine = engine
        self._saving = saving
        self._ended = ended
        self._running: list[Running] = []

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def all(self) -> tuple[Running, ...]:
        """All of them, in the order in which the engine begins them."""
        return tuple(self._running)

    def of(self, chat: str) -> Running | None:
        """The reply of the chat with that key."""
        return next((running for running in self._running if running.chat.key == chat), None)

    def add(self, running: Running) -> None:
        """Answer a turn, once `ask` sends the request."""
        running.chat.answer(running.turn, running.reply)
        self._saving.begun(running.chat, running.reply)
        self._running.append(running)

    def ask(
        self, running: Running, speculation: Speculation, template: Arguments = (), tools: tuple[Tool, ...] = ()
    ) -> None:
        """Send the request to the engine, which has to have a pair loaded whose template takes the arguments."""
        reply = running.reply
        self._running.sort(key=lambda each: (not each.reply.requested, each is not running))
        reply.state = "reading" if running is self._running[0] else "waiting"
        reply.speculation = speculation
        messages = running.chat.messages(running.turn)
        self._engine.send(
            Generate(
                reply.id,
                messages,
                reply.sampling,
                running.settings.limits,
                speculation,
                reply.start.prefill,
                reply.start.begun,
                chat=running.chat.key,
                template=template,
                tools=tools,
                grammar=running.grammar,
            )
        )

    def take(self, event: PromptProgress | Started | Step | Changed | Finished) -> Running | None:
        """Apply an event to its reply; None where that is none of these."""
        running = self._by_id(event.id)
        if running is None:
            return None
        match event:
            case PromptProgress():
                running.reply.read(event)
            case Started():
                running.reply.started(event)
            case Step():
                running.reply.step(event)
                if len(running.reply.steps) % LOOK_STEPS == 0:
                    from specchat.service.repetition import repeats_itself  # the app starts sooner without

                    running.repeats = repeats_itself(running.reply.raw)
            case Changed():
                running.reply.changed(event)
            case Finished():
                running.reply.finished(event)
                self._close(running)
        return running

    def fail(self, event: Failed) -> Running | None:
        """End the reply that failed, and return it."""
        running = self._by_id(event.id)
        if running is None:
            return None
        running.reply.failed(event)
        self._close(running, refused=event.kind in _REFUSALS)
        return running

    def stop(self, running: Running) -> None:
        """End a reply at its next step, or at once where the engine has not begun it."""
        waits = not running.reply.requested or running.reply.state == "waiting"
        if running.reply.requested:
            self._engine.send(Cancel(running.reply.id))
        if waits:
            running.reply.finished(Finished(running.reply.id, "cancelled", "", (), Stats()))
            self._close(running)
        else:
            running.stopping = True

    def wait_for_engine(self) -> None:
        """The engine is being started again: replies that it had not begun wait for its pair."""
        for running in self._running:
            if running.reply.state == "waiting":
                running.reply.state = "queued"

    def interrupt(self, why: str) -> None:
        """End all replies where they are and save them, without new dates for their chats."""
        for running in self._running:
            running.reply.failed(Failed(running.reply.id, "died", why))
            self._saving.begun(running.chat, running.reply)
        self._running.clear()

    def save(self) -> None:
        """Save the text so far, twice a second."""
        if writing := [(each.chat, each.reply) for each in self._running if each.reply.state == "writing"]:
            self._saving.written(writing)

    def _by_id(self, reply: int | None) -> Running | None:
        return next((running for running in self._running if running.reply.id == reply), None)

    def _close(self, running: Running, *, refused: bool = False) -> None:
        """Save a reply that ended. One without any text, stopped or failed, gives way to the one before it.

        One that was `refused` is none at all.
        """
        self._running.remove(running)
        if self._running and self._running[0].reply.state == "waiting":
            self._running[0].reply.state = "reading"
        reply = running.reply
        came_to_nothing = not (reply.raw or reply.tool_calls) and (
            reply.state == "failed" or reply.end.reason == "cancelled"
        )
        needless = refused and not running.turn.results  # results must not go with the reply to them
        if came_to_nothing and (needless or len(running.turn.replies) > 1):
            running.chat.drop(running.turn, running.reply)
            self._saving.dropped(running.reply)
        else:
            self._ended(running.reply)
            self._saving.ended(running.chat, running.reply)
