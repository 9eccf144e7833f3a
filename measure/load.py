"""Tests shown speedups and F4's advice on a machine whose load changes during replies.

    python -m measure.load [--rounds 10] [--seconds 20] [--json FILE]

Two busy loops, each on its own core, start and stop in turn. Each strategy and plain decoding answer a prompt
alternately from empty caches. The speedup that a reply showed is compared with the truth of its turn: the time of plain
decoding over that of the strategy, over all replies of the turn, because one reply alone is chance. The last column
says how often a reply and its neighbour, measured directly, are as far off. Times are processor times without waiting;
the clock's ratio over all turns of a prompt stands beside them. Pairs with a change of load between them are left out,
and so are truths uncertain by more than 5 % (95 %, bootstrap over replies). F4's advice is measured at once against its
alternative, alternately too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle
from os import sched_getaffinity
from pathlib import Path
from random import Random
from statistics import median, quantiles
from threading import Event as Signal
from threading import Thread

from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import read_prompts, spread
from specchat.chat.turn import Reply, Turn
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.stats import Speedup
from specchat.engine.session import Session
from specchat.insight.diagnosis import Advisor
from specchat.insight.ledger import Ledger

STRATEGIES = ("draft", "lookup", "suffix", "early-exit", "auto")
LOOPS = 2
BUSY = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
"""A program that keeps one core busy. It is pinned, because loops that share a core make the truth noisier."""
ALTERNATIONS = 16
"""Replies per turn of the strategy, and as many of plain decoding."""
ENOUGH = 6
"""Pairs of replies needed for a truth."""
RESAMPLED, UNSURE = 200, 0.05
"""Bootstrap samples, and the largest half interval of a truth."""
CANDIDATES, PROMPTS, TOKENS = 40, 3, 384
"""Candidate prompts, of which those with the longest replies run: short replies show no speedup."""
AT_ODDS, WORSE = 0.15, 0.05
"""Largest deviation of a shown speedup from the truth, and largest loss by advice."""


class Load:
    """Busy loops that start and stop in turn until closed."""

    def __init__(self, seconds: float) -> None:
        self._ended = Signal()
        self._seconds = seconds
        self.busy = False
        self.changes = 0
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            cores = sorted(sched_getaffinity(0))[:LOOPS]
            loops = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for core in cores]
            self.busy, self.changes = True, self.changes + 1
            self._ended.wait(self._seconds)
            for loop in loops:
                loop.kill()
                loop.wait()
            self.busy, self.changes = False, self.changes + 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@dataclass(frozen=True)
class Pair:
    """Milliseconds per token of a reply and of its neighbour, by clock and by processor time."""

    ms: float
    beside_ms: float
    ran_ms: float
    beside_ran_ms: float
    shown: Speedup | None = None

    @classmethod
    def of(cls, reply: Reply, beside: Reply) -> "Pair":
        one, other = reply.tally, beside.tally
        times = (
            one.milliseconds / one.tokens,
            other.milliseconds / other.tokens,
            one.ran_ms / one.tokens,
            other.ran_ms / other.tokens,
        )
        return cls(*times, reply.speedup)


@dataclass(frozen=True)
class Truth:
    """A measured speedup, and the relative half width of its interval."""

    times: float
    half: float

    @classmethod
    def of(cls, pairs: Sequence[Pair], by_clock: bool = False) -> "Truth":
        """Estimate from `pairs`; too few give an unknown truth."""
        found = _times(pairs, by_clock)
        if len(pairs) < ENOUGH:
            return cls(found, 1.0)
        chance = Random(0)
        again = [_times(chance.choices(pairs, k=len(pairs)), by_clock) for _ in range(RESAMPLED)]
        low, *_, high = quantiles(again, n=40)
        return cls(found, (high - low) / 2 / found)

    @property
    def known(self) -> bool:
        return self.half <= UNSURE


def _times(pairs: Sequence[Pair], by_clock: bool) -> float:
    if by_clock:
        return sum(pair.beside_ms for pair in pairs) / sum(pair.ms for pair in pairs)
    return sum(pair.beside_ran_ms for pair in pairs) / sum(pair.ran_ms for pair in pairs)


@dataclass
class Block:
    """A turn of a strategy and plain decoding on a prompt, under one load."""

    strategy: str
    prompt: str
    load: str
    pairs: list[Pair] = field(default_factory=list)


@dataclass(frozen=True)
class Advised:
    """Speedup `times` of an advised strategy over its alternative."""

    over: str
    words: str
    truth: Truth


class Bench:
    """Replies of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._ids = iter(range(1, 1 << 30))

    def reply(self, turn: Turn, speculation: Speculation) -> Reply:
        """A reply with the app's figures."""
        messages = (Message("user", turn.content),)
        request = Generate(next(self._ids), messages, Sampling(seed=0), Limits(TOKENS), speculation, cold=True)
        reply = Reply(request.id, self.session.info.name, request.sampling, speculation, turn=turn)
        for event in self.session.generate(request):
            match event:
                case Started():
                    reply.started(event)
                case Step():
                    reply.step(event)
                case Finished():
                    reply.finished(event)
        return reply

    def against(self, turn: Turn, one: Speculation, other: Speculation) -> Truth:
        """Speedup of `one` over `other`."""
        pairs = []
        for _ in range(ALTERNATIONS):
            beside = self.reply(turn, other)
            pairs.append(Pair.of(self.reply(turn, one), beside))
        return Truth.of(pairs)


def written(bench: Bench, load: Load, changes: int) -> tuple[list[Block], list[Advised]]:
    """Run all strategies in turn until the load has changed `changes` times."""
    plain, ledger = Speculation(), Ledger()
    candidates = spread(read_prompts(DEMO_PROMPTS), CANDIDATES)
    turns = [(prompt.id, Turn(prompt.messages[-1].content)) for prompt in candidates if len(prompt.messages) == 1]
    turns.sort(key=lambda named: -bench.reply(named[1], plain).tally.tokens)
    blocks: list[Block] = []
    advised: list[Advised] = []
    for (name, turn), strategy in cycle((one, strategy) for one in turns[:PROMPTS] for strategy in STRATEGIES):
        if load.changes >= changes:
            break
        speculation = Speculation.of(strategy)
        here = {kind: Block(strategy, name, kind) for kind in ("none", "busy")}
        for _ in range(ALTERNATIONS):
            block, changes_before = here["busy" if load.busy else "none"], load.changes
            beside, reply = bench.reply(turn, plain), bench.reply(turn, speculation)
            ledger.add(reply)
            if load.changes == changes_before:  # both ran under the same load
                block.pairs.append(Pair.of(reply, beside))
        blocks += (block for block in here.values() if block.pairs)
        advice = Advisor(ledger).diagnose(reply, bench.session.info, speculation, {}).advice
        if advice is not None:
            truth = bench.against(turn, advice.speculation, speculation)
            advised.append(Advised(strategy, advice.words, truth))
    return blocks, advised


@dataclass
class Held:
    """Shown speedups over known truths."""

    off: list[float] = field(default_factory=list)
    inside: int = 0
    """Number whose interval contains the truth."""
    unjudged: int = 0
    alone: list[float] = field(default_factory=list)
    """Ratios of one reply and its neighbour, measured directly, over known truths."""

    def hold(self, pairs: Sequence[Pair], truth: Truth) -> None:
        shown = [pair.shown for pair in pairs if pair.shown is not None]
        if truth.known:
            self.off += (one.times / truth.times for one in shown)
            self.alone += (_times([pair], by_clock=False) / truth.times for pair in pairs)
            self.inside += sum(one.low <= truth.times <= one.high for one in shown)
        else:
            self.unjudged += len(shown)


def beyond(ratios: Iterable[float]) -> int:
    """Number of `ratios` to a truth that are off by more than `AT_ODDS`."""
    return sum(abs(one - 1) > AT_ODDS for one in ratios)


def held(blocks: Iterable[Block], by_clock: bool) -> Held:
    """Compare with the truth of each turn, or `by_clock` with that of all turns of a prompt."""
    together: dict[object, list[Pair]] = {}
    for number, block in enumerate(blocks):
        together.setdefault(block.prompt if by_clock else number, []).extend(block.pairs)
    found = Held()
    for pairs in together.values():
        found.hold(pairs, Truth.of(pairs, by_clock))
    return found


def table(blocks: Sequence[Block]) -> str:
    """A row per strategy and load: deviation of the shown speedups from the truth."""
    rows = [
        "| strategy | load | truth | shown / truth: median | least | most | beyond 15 % | in its interval "
        "| truth unsure | shown | beyond, by the clock | beyond, of pairs alone |",
        "|---" * 12 + "|",
    ]
    for strategy in STRATEGIES:
        for kind in ("none", "busy"):
            of_it = [one for one in blocks if (one.strategy, one.load) == (strategy, kind)]
            near, clock = held(of_it, by_clock=False), held(of_it, by_clock=True)
            if near.off:
                replies, shown = sum(len(one.pairs) for one in of_it), len(near.off) + near.unjudged
                truths = [truth.times for one in of_it if (truth := Truth.of(one.pairs)).known]
                rows.append(
                    f"| {strategy} | {kind} | {min(truths):.2f}-{max(truths):.2f} | {median(near.off):.2f} "
                    f"| {min(near.off):.2f} | {max(near.off):.2f} | {beyond(near.off)} of {len(near.off)} "
                    f"| {near.inside} | {near.unjudged} | {shown} of {replies} replies "
                    f"| {beyond(clock.off)} of {len(clock.off)} | {beyond(near.alone)} of {len(near.alone)} |"
                )
    return "\n".join(rows)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    bench = Bench(load(load_catalog(None).find("demo").spec, lambda _: None))
    changing = Load(asked.seconds)
    try:
        found, advised = written(bench, changing, 2 * asked.rounds)
    finally:
        changing.close()
    print(table(found))
    known = [one for one in advised if one.truth.known]
    slower = [one for one in known if one.truth.times < 1 - WORSE]
    print(f"\nF4 advised {len(advised)} times, of which {len(known)} are judged; what was more than 5 % slower:")
    for one in slower:
        print(f"- over {one.over}: {one.words}; measured {one.truth.times:.2f} times as fast")
    if not slower:
        print("- none")
    if asked.json:
        asked.json.write_text(
            json.dumps(
                {"blocks": [asdict(one) for one in found], "advised": [asdict(one) for one in advised]}, indent=1
            )
        )


if __name__ == "__main__":
    main()
