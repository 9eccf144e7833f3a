"""The reply that a shared engine writes for another program, as far as it is told."""

from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Changed, Elsewhere, Failed, Finished, OtherClient, Started, Step
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Watch


@dataclass(frozen=True)
class OtherReply:
    """A reply to `prompt`, whose end may be cut off, for the process `pid` of a program called `client`."""

    client: str
    pid: int
    prompt: str
    reply: Reply


class OtherReplies:
    """Follows them while `wanted`: their starts and ends, and all that is written while they are watched."""

    def __init__(self, engine: EnginePort, wanted: bool) -> None:
        self._engine = engine
        self._wanted = wanted
        self._watched = False
        self._running: dict[int, OtherReply] = {}
        """The replies that are written, by their numbers."""
        self.last: OtherReply | None = None
        """The one that is written, of several the first that began, or the last one."""

    @property
    def now(self) -> OtherReply | None:
        """The one that is written."""
        return self.last if self._running else None

    def loaded(self) -> None:
        """A pair was loaded: hear of the replies of those who share it."""
        if self._wanted:
            self._engine.send(Watch(self._watched))

    def watch(self, on: bool) -> None:
        """Hear of each step, or no more."""
        self._watched = on
        self.loaded()

    def lost(self) -> None:
        """The engine is gone, or its pair."""
        for one in self._running.values():
            one.reply.failed(Failed(one.reply.id, "died", "The engine has ended."))
        self._running.clear()

    def take(self, told: Elsewhere) -> bool:
        """Apply an event; True if a reply begins or ends with it."""
        event = told.event
        if isinstance(event, OtherClient):
            made = Reply(event.id, "", Sampling(), Speculation())
            one = OtherReply(one_line(event.client, 20), event.pid, one_line(event.prompt), made)
            self.last = one if self.now is None else self.last
            self._running[event.id] = one
            return True
        known = self._running.get(event.id) if event.id is not None else None
        if known is None:
            return False
        match event:
            case Started():
                known.reply.started(event)
            case Step():
                known.reply.step(event)
            case Changed():
                known.reply.changed(event)
            case Finished():
                known.reply.finished(event)
            case Failed():
                known.reply.failed(event)
        if isinstance(event, Finished | Failed):
            del self._running[known.reply.id]
            self.last = next(iter(self._running.values()), known)
        return not isinstance(event, Step | Changed)
