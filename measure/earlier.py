"""Measures the cross-chat n-gram cache on the demo pair's chats, one after another.

    python -m measure.earlier [--chats 120]

Each strategy answers each chat greedily in turn. The cache holds the replies to all earlier chats and none to this one.
Times are those of the steps.
"""

import argparse

from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import read_prompts, spread
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.requests import Forget, Generate
from specchat.engine.protocol.tally import Tally
from specchat.engine.session import Session

STRATEGIES = ("plain", "draft", "lookup", "suffix", "ngram", "cascade", "auto")
TOKENS = 200


def answer(session: Session, request: Generate) -> list[Step]:
    """The steps of a reply, which then leaves the cache."""
    steps = [event for event in session.generate(request) if isinstance(event, Step)]
    forget(session, request.chat)
    return steps


def forget(session: Session, chat: str) -> None:
    """Remove a chat from the cache."""
    session.cross_chat.forget(Forget(chat))
    while session.cross_chat.digest():
        pass


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--chats", type=int, default=120)
    asked = options.parse_args()
    chats = [p.messages for p in spread(read_prompts(DEMO_PROMPTS), asked.chats)]
    pair = load_catalog(None).find("demo")
    session = load(pair.spec, lambda _: None)
    half = len(chats) // 2
    tallies = {name: [Tally(), Tally()] for name in STRATEGIES}
    for number, chat in enumerate(chats):
        for name in STRATEGIES:
            speculation = Speculation.of(name, pair.lengths.get(name))
            request = Generate(0, chat, Sampling(), Limits(TOKENS), speculation, chat=str(number))
            for step in answer(session, request):
                tallies[name][number >= half].add(step)
        for _ in session.generate(request):  # this time the reply stays in the cache
            pass
    for part, which in enumerate((f"chats 1 to {half}", f"chats {half + 1} to {len(chats)}")):
        plain = tallies["plain"][part].tokens_per_second
        for name, parts in tallies.items():
            tally = parts[part]
            length, kept = tally.acceptance_length, tally.acceptance_rate
            drafted = f", AL {length:.2f}, kept {kept:.0%}" if length is not None and kept is not None else ""
            share = tally.speculative / tally.steps
            print(
                f"{which}, {name}: {tally.tokens_per_second / plain:.2f}x plain, "
                f"{tally.tokens / tally.steps:.2f} tokens a step, drafts in {share:.0%} of steps{drafted}"
            )


if __name__ == "__main__":
    main()
