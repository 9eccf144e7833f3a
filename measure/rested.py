"""Tests multipliers shown by replies on a processor that rested, as in a chat, whose user reads and types between them.

    python -m measure.rested [--replies 12] [--seconds 3]

After each rest the demo's own strategy answers a prompt from empty caches, and plain decoding answers it after
another. The multiplier that the app shows of a reply is compared with the ratio of both times, without waits for a
processor.
"""

import argparse
from statistics import median
from time import sleep

from measure.load import Bench
from specchat.chat.lately import speedup_lately
from specchat.chat.turn import Turn
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.stats import Speedup

PROMPT = "Tell me a story about a boat and the sea."


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--replies", type=int, default=12)
    options.add_argument("--seconds", type=float, default=3.0)
    asked = options.parse_args()
    entry = load_catalog(None).find("demo")
    bench = Bench(load(entry.spec, lambda _: None))
    own = Speculation.of(entry.strategy, entry.lengths.get(entry.strategy))
    shown: list[tuple[Speedup, float]] = []
    truths: list[float] = []
    for _ in range(asked.replies):
        sleep(asked.seconds)
        reply = bench.reply(Turn(PROMPT), own)
        sleep(asked.seconds)
        truths.append(bench.reply(Turn(PROMPT), Speculation()).tally.ran_ms / reply.tally.ran_ms)
        if (times := speedup_lately(reply)) is not None:
            shown.append((times, truths[-1]))
    print(f"{len(shown)} of {asked.replies} replies show one; truth {min(truths):.2f} to {max(truths):.2f}")
    if shown:
        off = [times.times / truth for times, truth in shown]
        print(f"shown / truth: median {median(off):.2f}, {min(off):.2f} to {max(off):.2f}")
        print(f"truth in the interval: {sum(times.low <= truth <= times.high for times, truth in shown)}")


if __name__ == "__main__":
    main()
