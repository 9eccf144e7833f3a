"""Shown multipliers and F4's advice on a machine whose load changes while replies run.

    python -m measure.load [--rounds 10] [--seconds 4] [--json FILE]

Two busy loops begin and end in turn, whatever is written at the time. Each strategy and plain decoding answer the same
prompt alternately, from empty caches: what plain took in a block under one load, over what the strategy took, is the
truth, and each multiplier that a reply shows there is held against it; pairs between which the load changed are left
out. What F4 advises is measured against what it is advised
over at once, alternately too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from threading import Event as Signal
from threading import Thread

from specchat.chat.turn import Reply
from specchat.cli.prompts import read_prompts, spread
from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.api import Finished, Generate, Started, Step
from specchat.engine.loading import load
from specchat.engine.options import Limits, Message, Sampling, Speculation
from specchat.engine.session import Session
from specchat.tui.insight.diagnosis import Advisor
from specchat.tui.insight.ledger import Ledger

STRATEGIES = ("draft", "lookup", "suffix", "early-exit", "auto")
LOOPS = 2
ALTERNATIONS = 8
"""Replies of the strategy in a block, and of plain decoding."""
CANDIDATES, PROMPTS, TOKENS = 40, 8, 384
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
            loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS)]
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
    """A strategy on a prompt: milliseconds and tokens of its replies and of plain's, and what its replies showed."""

    strategy: str
    load: str
    ms: float
    tokens: int
    plain_ms: float
    plain_tokens: int
    shown: list[float]

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


def blocks(bench: Bench, load: Load, changes: int) -> Iterator[Block | Advised]:
    """Blocks of all strategies, until the load has changed so often."""
    plain, ledger, done = Speculation(), Ledger(), 0
    candidates = spread(read_prompts(demo_model("target").parent / "prompts.jsonl"), CANDIDATES)
    lengths = {prompt.id: bench.reply(prompt.messages, plain).tally.tokens for prompt in candidates}
    prompts = sorted(candidates, key=lambda prompt: -lengths[prompt.id])[:PROMPTS]
    while load.changes < changes:
        prompt, strategy = prompts[done // len(STRATEGIES) % PROMPTS], STRATEGIES[done % len(STRATEGIES)]
        done += 1
        speculation = Speculation.of(strategy)
        halves = {busy: Block(strategy, "busy" if busy else "none", 0.0, 0, 0.0, 0, []) for busy in (False, True)}
        for _ in range(ALTERNATIONS):
            before, changes_before = load.busy, load.changes
            beside, reply = bench.reply(prompt.messages, plain), bench.reply(prompt.messages, speculation)
            ledger.add(reply)
            if load.changes != changes_before:
                continue  # the two did not meet the same load
            block = halves[before]
            block.plain_ms += beside.tally.milliseconds
            block.plain_tokens += beside.tally.tokens
            block.ms += reply.tally.milliseconds
            block.tokens += reply.tally.tokens
            if reply.speedup is not None:
                block.shown.append(reply.speedup.times)
        yield from (block for block in halves.values() if block.tokens)
        advice = Advisor(ledger).diagnose(reply, bench.session.info, speculation, {}).advice
        if advice is not None:
            yield Advised(strategy, advice.words, bench.against(prompt.messages, advice.speculation, speculation))


def table(blocks: list[Block]) -> str:
    """A row a strategy and load: how far what was shown is from the truth."""
    rows = [
        "| strategy | load | blocks | shown / truth: median | least | most | beyond 15 % | shown |",
        "|---" * 8 + "|",
    ]
    for strategy in STRATEGIES:
        for kind in ("none", "busy"):
            of_it = [block for block in blocks if (block.strategy, block.load) == (strategy, kind)]
            off = [shown / block.truth for block in of_it for shown in block.shown]
            if off:
                beyond = sum(abs(one - 1) > AT_ODDS for one in off)
                rows.append(
                    f"| {strategy} | {kind} | {len(of_it)} | {median(off):.2f} | {min(off):.2f} | {max(off):.2f} "
                    f"| {beyond} of {len(off)} | {len(off)} |"
                )
    return "\n".join(rows)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--seconds", type=float, default=8.0)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    bench = Bench(load(load_catalog(None).find("demo").spec, lambda _: None))
    changing, found, advised = Load(asked.seconds), list[Block](), list[Advised]()
    try:
        for one in blocks(bench, changing, 2 * asked.rounds):
            (found if isinstance(one, Block) else advised).append(one)  # type: ignore[arg-type]
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
