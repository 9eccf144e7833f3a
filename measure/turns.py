"""Measures a chat of many turns up to the full context, each turn repeatedly with plain decoding and `auto`.

    python -m measure.turns [--repeats 7] [--temperature 0]

The demo pair answers prompts of many kinds until its context is full. A turn's speed is by the clock and starts after
the first step; the figure is the median ratio of consecutive replies.
"""

import argparse
from dataclasses import replace
from statistics import median
from time import perf_counter

from measure.earlier import forget
from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import read_prompts, spread
from specchat.config.catalog import load_catalog
from specchat.engine.errors import ContextError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

PROMPTS = 40
"""More than fit the context."""
CHAT = "turns"


def answer(session: Session, request: Generate) -> tuple[float, str, int]:
    """Tokens per second after the first step, the reply, and prompt tokens; the reply leaves the cross-chat cache.

    Raises:
        ContextError: the chat is full.
    """
    tokens, begun, text, prompt = 0, 0.0, "", 0
    for event in session.generate(request):
        match event:
            case Started():
                prompt = event.prompt_tokens
            case Step() if begun:
                tokens += event.emitted
            case Step():
                begun = perf_counter()
            case Finished():
                text = event.text
    speed = tokens / (perf_counter() - begun)
    forget(session, CHAT)
    return speed, text, prompt


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--temperature", type=float, default=0.0)
    asked = options.parse_args()
    chats = spread(read_prompts(DEMO_PROMPTS), PROMPTS)
    session = load(load_catalog(None).find("demo").spec, lambda _: None)
    request = Generate(0, (), Sampling(0, temperature=asked.temperature), Limits(context="refuse"), chat=CHAT)
    messages: tuple[Message, ...] = ()
    prompts = [chat.messages[-1] for chat in chats if len(chat.messages) == 1]
    for turn, prompt in enumerate(prompts, 1):
        asked_for = replace(request, messages=(*messages, prompt))
        ratios, text, used = [], "", 0
        try:
            for repeat in range(asked.repeats):
                speeds = {}
                for name in ("plain", "auto") if repeat % 2 else ("auto", "plain"):
                    speculation = Speculation.of(name)
                    speeds[name], text, used = answer(session, replace(asked_for, speculation=speculation))
                if speeds["plain"]:
                    ratios.append(speeds["auto"] / speeds["plain"])
        except ContextError:
            break
        messages = (*asked_for.messages, Message("assistant", text))
        if ratios:
            spread_of = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"turn {turn}, after {used} tokens, {prompt.content[:40]!r}: {spread_of}")


if __name__ == "__main__":
    main()
