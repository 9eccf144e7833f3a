"""A reply written on the device.

The host starts a step, waits for its report, starts the next one, and only then looks at the text: detokenising and
drawing overlap with the device's work. A step that turns out not to be wanted is dropped.
"""

from collections.abc import Collection
from dataclasses import dataclass

from specchat.engine.api import Acceptance, Sampling
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.decoding.step import Stepped
from specchat.engine.device.clock import Clock
from specchat.engine.device.drafters import DeviceDrafter
from specchat.engine.device.launches import Launches
from specchat.engine.device.target import DeviceTarget


@dataclass(frozen=True)
class Plan:
    """How a step drafts: at most `limit` tokens."""

    drafter: Drafter | DeviceDrafter
    limit: int
    acceptance: Acceptance


@dataclass(frozen=True)
class Flying:
    """A step under way on the device, with `drafted` tokens to check; `confidence` as in `Draft`."""

    plan: Plan
    drafted: int
    confidence: tuple[float, ...]


class DeviceDecoding:
    """A reply being written. The device holds the state of the text; `committed` is the host's copy of it."""

    def __init__(
        self, target: DeviceTarget, launches: Launches, sampling: Sampling, prompt: list[int], eos: Collection[int]
    ) -> None:
        self.target = target
        self.committed = list(prompt)
        self._prompt = len(prompt)
        self._sampler = Sampler(sampling)
        self._history = History(prompt)
        self._eos = frozenset(eos)
        self._launches = launches
        self._clock = Clock(launches.device)
        self._flying: Flying | None = None
        launches.begin(sampling, prompt, sorted(self._eos))

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        return self.target.context - len(self.committed)

    def step(self, drafter: Drafter | DeviceDrafter, length: int, acceptance: Acceptance) -> Stepped:
        """Add at least one token, at most `length` + 1, none after an end-of-text token."""
        plan = Plan(drafter, max(0, min(length, self.room - 1)), acceptance)
        if self._flying is None or self._flying.plan != plan:
            self.close()
            self._launch(plan)
        flying, self._flying = self._flying, None
        assert flying is not None
        draft_ms, verify_ms = self._clock.wait()
        verdict = self._launches.verdict(flying.drafted)
        self.committed += verdict.tokens
        self.target.tokens += self.committed[len(self.target.tokens) : -1]
        for token in verdict.tokens:
            self._history.push(token)
        drafter.observe(self.committed)
        if verdict.tokens[-1] not in self._eos and self.room > length:
            self._launch(plan)
        return Stepped(
            tokens=tuple(verdict.tokens),
            drafts=tuple(verdict.fed),
            confidence=flying.confidence,
            tested=verdict.tested,
            accepted=min(verdict.accepted, len(verdict.tokens)),
            draft_ms=draft_ms,
            verify_ms=verify_ms,
        )

    def close(self) -> None:
        """Drop a step that is under way; the device stands where `committed` ends."""
        if self._flying is not None:
            self._flying = None
            self._clock.wait()
            self._launches.place(self.committed, self._prompt)

    def _launch(self, plan: Plan) -> None:
        self._clock.start()
        self._launches.judge_by(plan.acceptance)
        confidence: tuple[float, ...] = ()
        if isinstance(plan.drafter, DeviceDrafter):
            drafted = plan.drafter.propose(self.committed, plan.limit)
            source = plan.drafter.source if drafted else "host"
        else:
            draft = plan.drafter.propose(self.committed, plan.limit, self._sampler, self._history, False)
            self._launches.feed(draft.tokens)
            drafted, source, confidence = len(draft.tokens), "host", tuple(draft.confidence)
        self._clock.drafted()
        self._launches.verify(source, drafted)
        self._clock.verified()
        self._flying = Flying(plan, drafted, confidence)
