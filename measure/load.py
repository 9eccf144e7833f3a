"""Shown multipliers and F4's advice on a machine whose load changes while replies run.

    python -m measure.load [--rounds 10] [--seconds 20] [--json FILE]

Two busy loops, each on a core of its own, begin and end in turn, whatever is written at the time. Each strategy and
plain decoding answer a prompt alternately, from empty caches. The truth of a strategy, prompt and load is the time that
plain took over the time that the strategy took, of all rounds: of one reply it would be chance, for the loops hold a
core for milliseconds. Each multiplier that a reply showed is held against it. Pairs between which the load changed are
left out. What F4 advises is measured at once against what it is advised over, alternately too.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from itertools import cycle
from os import sched_getaffinity
from pathlib import Path
from statistics import median
from threading import Event as Signal
from threading import Thread

from specchat.chat.turn import Reply
from specchat.cli.prompts import read_prompts, spread
from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.api import Finished, Generate, Speedup, Started, Step
from specchat.engine.loading import load
from specchat.engine.options import Limits, Message, Sampling, Speculation
from specchat.engine.session import Session
from specchat.tui.insight.diagnosis import Advisor
from specchat.tui.insight.ledger import Ledger

STRATEGIES = ("draft", "lookup", "suffix", "early-exit", "auto")
LOOPS = 2
BUSY = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
"""A program that keeps a core busy. Bound to it: else the loops share one now and then, and the truth needs longer."""
ALTERNATIONS = 8
"""Replies of the strategy in a turn, and of plain decoding."""
ENOUGH = 8
"""Replies of a strategy, prompt and load that tell a truth."""
CANDIDATES, PROMPTS, TOKENS = 40, 3, 384
"""Of so many prompts those with the longest replies are asked: of a short one no multiplier is shown."""
AT_ODDS, WORSE = 0.15, 0.05
"""How far a shown multiplier may be from the truth, and how much slower what is advised."""


class Load:
    """Busy loops that begin and end in turn until it is closed."""

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


@dataclass
class Block:
    """A strategy on a prompt under a load: what its replies and plain's took, and what they showed."""

    strategy: str
    prompt: str
    load: str
    replies: int = 0
    ms: float = 0.0
    tokens: int = 0
    plain_ms: float = 0.0
    plain_tokens: int = 0
    shown: list[Speedup] = field(default_factory=list)

    @property
    def truth(self) -> float:
        return (self.plain_ms / self.plain_tokens) / (self.ms / self.tokens)


@dataclass
class Advised:
    """`times` what was advised is as fast as what it was advised over."""

    over: str
    words: str
    times: float


class Bench:
    """Replies of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._ids = iter(range(1, 1 << 30))

    def reply(self, messages: tuple[Message, ...], speculation: Speculation) -> Reply:
        """A reply as the app has it."""
        request = Generate(next(self._ids), messages, Sampling(seed=0), Limits(TOKENS), speculation, cold=True)
        reply = Reply(request.id, self.session.info.name, request.sampling, speculation)
        for event in self.session.generate(request):
            match event:
                case Started():
                    reply.started(event)
                case Step():
                    reply.step(event)
                case Finished():
                    reply.finished(event)
        return reply

    def against(self, messages: tuple[Message, ...], one: Speculation, other: Speculation) -> float:
        """Times that `one` is as fast as `other`."""
        spent: dict[Speculation, list[float]] = {one: [], other: []}
        for _ in range(ALTERNATIONS):
            for speculation, of_it in spent.items():
                of_it.append(per_token(self.reply(messages, speculation)))
        return sum(spent[other]) / sum(spent[one])


def per_token(reply: Reply) -> float:
    return reply.tally.milliseconds / reply.tally.tokens


def written(bench: Bench, load: Load, changes: int) -> tuple[list[Block], list[Advised]]:
    """All strategies in turn, until the load has changed so often."""
    plain, ledger = Speculation(), Ledger()
    candidates = spread(read_prompts(demo_model("target").parent / "prompts.jsonl"), CANDIDATES)
    lengths = {prompt.id: bench.reply(prompt.messages, plain).tally.tokens for prompt in candidates}
    prompts = sorted(candidates, key=lambda prompt: -lengths[prompt.id])[:PROMPTS]
    blocks: dict[tuple[str, str, str], Block] = {}
    advised: list[Advised] = []
    for prompt, strategy in cycle((prompt, strategy) for prompt in prompts for strategy in STRATEGIES):
        if load.changes >= changes:
            break
        speculation = Speculation.of(strategy)
        for _ in range(ALTERNATIONS):
            key, changes_before = (strategy, prompt.id, "busy" if load.busy else "none"), load.changes
            beside, reply = bench.reply(prompt.messages, plain), bench.reply(prompt.messages, speculation)
            ledger.add(reply)
            if load.changes != changes_before:
                continue  # the two did not meet the same load
            block = blocks.setdefault(key, Block(*key))
            block.replies += 1
            block.plain_ms += beside.tally.milliseconds
            block.plain_tokens += beside.tally.tokens
            block.ms += reply.tally.milliseconds
            block.tokens += reply.tally.tokens
            if reply.speedup is not None:
                block.shown.append(reply.speedup)
        advice = Advisor(ledger).diagnose(reply, bench.session.info, speculation, {}).advice
        if advice is not None:
            times = bench.against(prompt.messages, advice.speculation, speculation)
            advised.append(Advised(strategy, advice.words, times))
    return list(blocks.values()), advised


def table(blocks: list[Block]) -> str:
    """A row a strategy and load: how far what was shown is from the truth."""
    rows = [
        "| strategy | load | truth | shown / truth: median | least | most | beyond 15 % | in its interval | shown |",
        "|---" * 9 + "|",
    ]
    for strategy in STRATEGIES:
        for kind in ("none", "busy"):
            of_it = [one for one in blocks if (one.strategy, one.load) == (strategy, kind) and one.replies >= ENOUGH]
            off = [shown.times / block.truth for block in of_it for shown in block.shown]
            held = sum(shown.low <= block.truth <= shown.high for block in of_it for shown in block.shown)
            if off:
                beyond, replies = sum(abs(one - 1) > AT_ODDS for one in off), sum(block.replies for block in of_it)
                truths = [block.truth for block in of_it]
                rows.append(
                    f"| {strategy} | {kind} | {min(truths):.2f}-{max(truths):.2f} | {median(off):.2f} | {min(off):.2f} "
                    f"| {max(off):.2f} | {beyond} of {len(off)} | {held} | {len(off)} of {replies} replies |"
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
    slower = [one for one in advised if one.times < 1 - WORSE]
    print(f"\nF4 advised {len(advised)} times; {len(slower)} times what was more than 5 % slower:")
    for one in slower:
        print(f"- over {one.over}: {one.words}; measured {one.times:.2f} times as fast")
    if asked.json:
        asked.json.write_text(
            json.dumps(
                {"blocks": [asdict(one) for one in found], "advised": [asdict(one) for one in advised]}, indent=1
            )
        )


if __name__ == "__main__":
    main()
