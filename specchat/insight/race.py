"""A race on one prompt and seed: plain decoding, then a drafting strategy, and whether both wrote the same.

The lanes run one after the other, because two at once would halve both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specchat.chat.record import speculation_label
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.engine.protocol.events import Event, Failed, Finished, Started, Step
from specchat.engine.protocol.options import Beginning, Sampling, Speculation
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.strategies import SERVER, STRATEGIES
from specchat.insight.replay import Pace, Timeline
from specchat.service.chat_service import ChatService

RaceState = Literal["running", "finished", "failed", "stopped"]


class Lane:
    """One of the two replies. It belongs to no conversation."""

    def __init__(self, request: Generate) -> None:
        self.speculation = request.speculation
        self.reply = Reply(request.id, "", request.sampling, request.speculation)
        self.reply.start = Beginning(request.prefill, request.begun)
        self.timeline = Timeline(self.reply.record)
        self.token_ids: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return speculation_label(self.speculation)

    @property
    def milliseconds(self) -> float:
        """Decoding so far, without reading the prompt."""
        return self.timeline.total

    def take(self, event: Started | Step | Finished) -> None:
        match event:
            case Started():
                self.reply.started(event)
                self.timeline = Timeline(self.reply.record)
            case Step():
                self.reply.step(event)
                self.timeline.update()
            case Finished():
                self.reply.finished(event)
                self.token_ids = event.token_ids


@dataclass(frozen=True)
class RaceVerdict:
    """`times` is the strategy's speed over plain's in this race.

    `difference` is the first token that differs, or the first character where a server does not tell its tokens.
    """

    times: float | None
    identical: bool
    difference: int | None
    by_text: bool
    expected: bool
    """True if the texts have to be the same."""


class Race:
    """Asks the engine for both lanes in turn and takes their events."""

    def __init__(
        self, service: ChatService, request: Generate, ended: Callable[[Lane, Lane], object] = lambda *_: None
    ) -> None:
        """`request` is the drafted reply's; `ended` gets both lanes at the end."""
        self._ended = ended
        self.service = service
        # Cold: nothing of the prompt may be cached for one lane only.
        self._request = replace(request, cold=True, tools=service.tools_for(service.conversation.key))
        speculation, new_id = request.speculation, service.listeners.new_id
        plain = Speculation("plain", 0, speculation.acceptance)
        self.lanes = tuple(Lane(replace(request, id=new_id(), speculation=each)) for each in (plain, speculation))
        self.elsewhere = speculation.strategy == SERVER
        """True if servers run the lanes."""
        self.at = 0
        """The lane that runs, or ran last."""
        self.state: RaceState = "running"
        self.error = ""
        self._ask()

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def sampling(self) -> Sampling:
        return self.lanes[0].reply.sampling

    @property
    def verdict(self) -> RaceVerdict | None:
        """Once both lanes are through."""
        if self.state != "finished":
            return None
        plain, other = self.lanes
        speeds = [lane.reply.tally.tokens_per_second for lane in self.lanes]
        by_text = not (plain.token_ids or other.token_ids)
        texts = [lane.reply.raw for lane in self.lanes] if by_text else [lane.token_ids for lane in self.lanes]
        difference = first_difference(*texts)
        coupled = other.speculation.acceptance == "coupled" and not self.elsewhere
        expected = coupled or (self.sampling.greedy and not self.sampling.unset)
        times = speeds[1] / speeds[0] if speeds[0] else None
        return RaceVerdict(times, difference is None, difference, by_text, expected)

    def _take(self, event: Event) -> None:
        """Take an event of the lane that runs."""
        match event:
            case Failed():
                self._fail(event.message)
            case Started() | Step():
                self.lanes[self.at].take(event)
            case Finished():
                self.lanes[self.at].take(event)
                self._finished(event)

    def stop(self) -> None:
        """End it at the engine's next step."""
        if self.running:
            self.state = "stopped"
            self.service.engine.send(Cancel(self.lanes[self.at].reply.id))

    def _ask(self) -> None:
        lane = self.lanes[self.at]
        lane.reply.state = "reading"
        request = replace(
            self._request,
            id=lane.reply.id,
            speculation=lane.speculation,
            undrafted=self.elsewhere and self.at == 0,
        )
        self.service.request(request, self._take)

    def _finished(self, event: Finished) -> None:
        if not self.running:
            return
        if event.reason == "cancelled":
            self.state = "stopped"
        elif self.at == 0:
            self.at = 1
            self._ask()
        else:
            self.state = "finished"
            self._ended(*self.lanes)

    def _fail(self, message: str) -> None:
        if self.running:
            self.state, self.error = "failed", clean(message)


class RaceView:
    """A race as it is seen: the lane that runs live, and beside it the other one at its measured pace.

    Once it is over both are played again from the start, slowly where they were too fast to be followed.
    """

    def __init__(self, race: Race) -> None:
        self.race = race
        self._clock = 0.0
        self._live = True
        self._pace = Pace()

    @property
    def speed(self) -> float:
        """Times the measured pace, when played again."""
        return self._pace.speed(self._longest)

    @property
    def pace(self) -> str:
        """The same in words."""
        return self._pace.words(self._longest)

    @property
    def milliseconds(self) -> float:
        """The race's time, which both lanes share."""
        return self._clock

    @property
    def moving(self) -> bool:
        return self.race.running or self._live or self._clock < self._longest

    @property
    def _longest(self) -> float:
        return max(lane.milliseconds for lane in self.race.lanes)

    def advance(self, seconds: float) -> None:
        """Let so much time pass for the viewer. While a lane runs, its own time is the race's."""
        if self.race.running:
            self._clock = self.race.lanes[self.race.at].milliseconds
        elif self._live:
            self._clock, self._live = 0.0, False
        else:
            self._clock = min(self._clock + 1000 * seconds * self.speed, self._longest)

    def faster(self, by: int) -> None:
        """The next higher paces, or lower ones."""
        self._pace.faster(by)

    def restart(self) -> None:
        """Play both lanes again."""
        if not self.race.running:
            self._clock = 0.0

    def steps(self, lane: Lane) -> int:
        """Number of a lane's steps on the screen."""
        return lane.timeline.steps_at(self._clock)


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """The index of the first item that differs, or that only one of them has; None where they are the same."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def rival(chosen: Speculation, preferred: str, lengths: Mapping[str, int], info: PairInfo) -> Speculation | None:
    """The speculation that races plain decoding: the one set, else the pair's own, else the first that works.

    A server's own if the same model writes without drafting somewhere.
    """
    if info.server.name:
        return Speculation(SERVER) if info.plain.server else None
    if chosen.strategy != "plain":
        return chosen
    usable = [status.name for status in info.strategies if status.available and status.name in STRATEGIES]
    for name in (preferred, *usable):
        if name in usable and name != "plain":
            return Speculation.of(name, lengths.get(name), chosen.acceptance)
    return None
