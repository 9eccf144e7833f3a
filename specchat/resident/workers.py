"""Workers that clients share, and the routing of their events."""

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.fetch.file_state import file_state, state_once_loaded
from specchat.engine.process.client import EngineClient
from specchat.engine.process.wire import Sealed
from specchat.engine.protocol.events import (
    AwaitingClient,
    Counted,
    Event,
    Failed,
    Finished,
    Loaded,
    Loading,
    OtherClient,
    Started,
)
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import PairInfo, ReadTexts
from specchat.engine.protocol.raw_prompt import text_of
from specchat.engine.protocol.requests import Cancel, Count, Generate, Load, Request, Watch
from specchat.resident.loads import PendingLoads

MAX_WAITING = 64
"""Replies and counts that a client may wait for at once."""
MAX_KEPT_BYTES = 16 << 20
"""Bytes of steps of the running reply that are kept for clients who come to watch."""
MAX_PROMPT_CHARS = 200
"""Characters of a prompt that others are shown."""


@dataclass(frozen=True)
class Restart:
    """Request to start the client's worker again; `Restarted` answers with the number, after all older events."""

    number: int


@dataclass(frozen=True)
class Restarted:
    number: int


@dataclass(eq=False)
class Client:
    """A program that uses an engine. `send` takes events, and steps as they came."""

    name: str
    pid: int
    send: Callable[[Any], None]
    background: bool = False
    """True if its replies are cancelled where others ask for one, and shown to nobody."""
    worker: "SharedWorker | None" = None
    generation: int = 0
    """The one of its worker that it asked for."""
    lost: bool = False
    """True if it was notified of its worker's end and requested nothing since."""
    waiting: dict[int, bool] = field(default_factory=dict)
    """Replies and counts that have not ended, the oldest first; True for replies."""
    watched: Watch | None = None
    """Events of others' replies that it subscribes to."""

    def watch(self, request: Watch) -> None:
        """Tell it of others' replies, from the beginning of those that are written."""
        self.watched = request
        for reply in self.worker.current.values() if self.worker is not None else ():
            reply.tell(self)


class CurrentReply:
    """A reply that a worker writes, as it is told to others than its client."""

    def __init__(self, owner: Client, prompt: str, event: Started) -> None:
        self.owner = owner
        self.about = OtherClient(event.id, owner.name, owner.pid, prompt)
        self._head = (self.about, event)
        self._steps: list[Sealed] = []
        self._bytes = 0

    def add(self, step: Sealed) -> None:
        """Keep a step for those who come later, as far as there is room."""
        self._bytes += len(step.frame)
        if self._bytes <= MAX_KEPT_BYTES:
            self._steps.append(step)

    def tell(self, client: Client) -> None:
        """Tell a client all so far, if it is another's reply."""
        if client is self.owner or client.watched is None:
            return
        for event in (*self._head, *(self._steps if client.watched.steps else ())):
            client.send(event)


class SharedWorker:
    """A worker process with the clients that use it, all of one pair."""

    def __init__(self, log: Path | None, loader: str, arrived: Callable[[Any], object]) -> None:
        self.engine = EngineClient(log, loader, sealed=True)
        self.engine.listen(arrived)
        self.pair: PairSpec | None = None
        self._files = ""
        """The state of the pair's files as it was loaded."""
        self.info: PairInfo | None = None
        self.read = ReadTexts()
        """Bytes that read texts took after the last reply."""
        self.replies_a_pass = 1.0
        """Replies whose tokens a pass of the last reply read."""
        self.clients: list[Client] = []
        self.generation = 0
        """How often it was started again."""
        self.dead = False
        self.resting = False
        """True after `rest`, until a request comes."""
        self.current: dict[int, CurrentReply] = {}
        """The replies that it writes, by their numbers."""
        self._prompts: dict[int, str] = {}
        """Last messages of replies that have not begun, shortened."""
        self._loads = PendingLoads[Client]()

    def has(self, pair: PairSpec) -> bool:
        """True if `pair`, or a longer context of it, is loaded or being loaded, from the files that are there now."""
        same = pair == self.pair and self._files == file_state(pair)
        return same or (self.grows_to(pair) and pair.fits_in(self._context))

    def grows_to(self, pair: PairSpec) -> bool:
        """True if what is loaded differs from `pair` in its context at most: two of them are not to take the memory."""
        known = self.pair is not None and self.pair.alike(pair)
        return known and self._files == file_state(pair)

    @property
    def _context(self) -> float:
        """Tokens of the context that is loaded, or being loaded."""
        if self.info is not None:
            return self.info.context
        return self.pair.wanted_context if self.pair is not None else 0

    def load(self, client: Client, pair: PairSpec) -> None:
        """Have `pair` loaded for a client that uses this worker."""
        if self.dead:
            self._begin_again()
            self.pair = None
        client.generation, client.lost = self.generation, False
        known = self.has(pair)
        if known and self.info is not None:
            client.send(Loaded(self.info))
            for reply in self.current.values():
                reply.tell(client)
            return
        self.resting = False
        self.engine.start()
        if not known or not self._loads:
            users: list[Client] = []
            if self.grows_to(pair):
                users = [other for other in self.clients if other is not client]
            for other in [other for other in self.clients if other.background and other not in users]:
                self._notify_death(other, Failed(None, "died", "The engine has loaded another pair."))
                self.remove(other)
            self._loads.add(users=users, before=self.pair)
            self.pair, self._files, self.info = pair, file_state(pair), None
            self.engine.send(Load(pair))
        self._loads.ask(client, shorter=None if pair == self.pair else pair)

    def forward(self, client: Client, request: Request) -> None:
        """Pass on a request about replies, counts or remembered chats."""
        if isinstance(request, Generate | Count):
            if len(client.waiting) >= MAX_WAITING:
                client.send(Failed(request.id, "request", f"{MAX_WAITING} requests wait already. Let them end first."))
                return
            if isinstance(request, Generate) and not client.background:
                self._cancel_background()
            if isinstance(request, Generate) and (busy := self._busy_with(client)) is not None:
                client.send(AwaitingClient(request.id, busy.name, busy.pid))
            client.waiting[request.id] = isinstance(request, Generate)
            if self.resting and self.pair is not None:
                self.resting = False
                self.engine.start()
                self._loads.add(self.clients)
                self.engine.send(Load(self.pair))
            if isinstance(request, Generate):
                self._prompts[request.id] = _shortened(request)
        self.engine.send(request)

    @property
    def idle(self) -> bool:
        """True if it has a GPU's memory, and nothing to do."""
        on_gpu = self.info is not None and bool(self.info.load.gpu) and not (self.resting or self.dead)
        return on_gpu and not self._loads and not any(client.waiting for client in self.clients)

    def rest(self) -> None:
        """End the process, which gives back a GPU's memory; the next request loads the pair again."""
        self.engine.close()
        self.resting = True

    def _cancel_background(self) -> None:
        """End replies that make way for others."""
        for other in self.clients:
            for reply in other.waiting if other.background else ():
                self.engine.send(Cancel(reply))

    def _busy_with(self, client: Client) -> Client | None:
        """Another client that waits for a reply, and does not make way."""
        others = (other for other in self.clients if other is not client and not other.background)
        return next((other for other in others if any(other.waiting.values())), None)

    def restart(self, client: Client, number: int) -> None:
        """Start the worker again unless that was done since `client` heard of it; the others are told."""
        client.waiting.clear()
        client.send(Restarted(number))
        if self.pair is None:
            return
        if client.generation == self.generation:
            for other in self.clients:
                if other is not client and not other.lost:
                    self._notify_death(other, Failed(None, "died", "another window restarted it"))
            self._begin_again()
            self.engine.restart()
            self._loads.add()
        self.load(client, self.pair)

    def remove(self, client: Client) -> None:
        """Stop what is written for a client that is gone."""
        self.clients.remove(client)
        for reply in client.waiting:
            self.engine.send(Cancel(reply))
        self._loads.remove(client)
        client.worker = None
        client.waiting.clear()

    def events(self) -> Iterator[tuple[Client, Event | Sealed]]:
        """New events of the worker, each with its client."""
        for event in self.engine.poll():
            yield from self._event(event)

    def _event(self, event: Event | Sealed) -> Iterator[tuple[Client, Event | Sealed]]:
        match event:
            case Failed(kind="died"):
                self.dead, self.info = True, None
                self.current.clear()
                self._prompts.clear()
                self._loads.clear()
                for client in self.clients:
                    self._notify_death(client, event)
            case Loading() | Loaded() | Failed(id=None):
                for client in self._loads.hearers(event):
                    yield client, event
                if not isinstance(event, Loading):
                    self._loaded(event)
            case Sealed():
                if owner := self._owner(event.reply):
                    yield owner, event
                if (current := self.current.get(event.reply)) is not None:
                    current.add(event)
                    yield from self._watching(current, event)
            case Started() | Finished() | Counted() | Failed():
                yield from self._edge(event)
            case _:
                if event.id is not None and (owner := self._owner(event.id)):
                    yield owner, event

    def _edge(self, event: Started | Finished | Counted | Failed) -> Iterator[tuple[Client, Event | Sealed]]:
        """The begin or the end of a request."""
        assert event.id is not None
        prompt, owner = self._prompts.pop(event.id, ""), self._owner(event.id)
        if isinstance(event, Finished):
            self.read, self.replies_a_pass = event.read, event.stats.replies_a_pass
        if owner is not None:
            if not isinstance(event, Started):
                del owner.waiting[event.id]
            elif not owner.background:
                self.current[event.id] = current = CurrentReply(owner, prompt, event)
                yield from self._watching(current, current.about)
            yield owner, event
        if event.id in self.current:
            yield from self._watching(self.current[event.id], event)
            if not isinstance(event, Started):
                del self.current[event.id]

    def _watching(self, reply: CurrentReply, event: Event | Sealed) -> Iterator[tuple[Client, Event | Sealed]]:
        """An event of a reply, for each client that watches it."""
        for client in self.clients:
            wanted = client.watched
            if client is not reply.owner and wanted and (wanted.steps or not isinstance(event, Sealed)):
                yield client, event

    def _loaded(self, event: Loaded | Failed) -> None:
        """The first load ended; what later ones ask for counts where there are any."""
        instead = self._loads.end(event)
        if not self._loads:
            self.info = event.info if isinstance(event, Loaded) else None
            self.pair = self.pair if self.info else instead.before
            self._files = state_once_loaded(self.pair, self._files) if self.pair else ""
            if self.pair is not None and self.info is None:
                self._loads.add(instead.askers)
                self.engine.send(Load(self.pair))

    def _begin_again(self) -> None:
        self.generation += 1
        self._loads.clear()
        self.dead, self.resting, self.info = False, False, None

    def _notify_death(self, client: Client, death: Failed) -> None:
        client.send(replace(death, id=next(iter(client.waiting), None)))
        client.lost = True
        client.waiting.clear()

    def _owner(self, reply: int) -> Client | None:
        return next((client for client in self.clients if reply in client.waiting), None)


def _shortened(request: Generate) -> str:
    text = request.messages[-1].content if request.messages else text_of(request.raw)
    return one_line(text[: 4 * MAX_PROMPT_CHARS], MAX_PROMPT_CHARS)
