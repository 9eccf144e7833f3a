"""Measures what is read again where other texts come between, with the shelf and without, and after a restart.

    python -m measure.read_again [--tokens 8000] [--repeats 3]

A random model of 0.16B on the CPU. A main chat is asked again after two foreign requests; four sub-agents share 800 of
900 tokens, with a turn of the main chat before each; and a new start of the engine reads the main chat, from disk or
anew. Kinds run in turn; figures are medians, with the least and the most.
"""

import argparse
import os
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from measure.made_pairs import llama
from specchat.engine.loading import load
from specchat.engine.prefixes.bounds import FOLDER, MEMORY
from specchat.engine.protocol.events import Started
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer


class Read(NamedTuple):
    """Tokens that were read of prompts, and the seconds until they were."""

    tokens: int
    seconds: float


def read(session: Session, *prompts: str) -> Read:
    """Have prompts answered by a token each."""
    tokens, seconds = 0, 0.0
    for prompt in prompts:
        begun = perf_counter()
        for event in session.generate(Generate(1, (), limits=Limits(1), speculation=Speculation(), raw=prompt)):
            if isinstance(event, Started):
                seconds += perf_counter() - begun
                tokens += event.prompt_tokens - event.reused
    return Read(tokens, seconds)


def words(tokenizer: Tokenizer, seed: int, tokens: int) -> str:
    """Random words of about so many tokens."""
    drawn, text = random.Random(seed), ""
    while len(tokenizer.encode(text)) < tokens:
        text += " ".join(drawn.choice(("fox", "lamp", "crab", "sea", "old", "said", "house")) for _ in range(20)) + ". "
    return text


def told(name: str, found: list[Read]) -> str:
    seconds = sorted(one.seconds for one in found)
    return f"{name:42} {found[-1].tokens:7,} tokens  {median(seconds):7.3f} s ({seconds[0]:.3f}-{seconds[-1]:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory() as root:
        llama(Path(root) / "m", hidden=1024, inner=2816, layers=12, heads=16, seed=1, context=options.tokens + 2048)
        pair = PairSpec("m", "M", ModelSource(path=str(Path(root) / "m"), device="cpu"), context=options.tokens + 2048)
        os.environ[FOLDER] = str(Path(root) / "read")

        def started(memory: str) -> Session:
            os.environ[MEMORY] = memory
            return load(pair, lambda _: None)

        kinds = {"with the shelf": started("2 GiB"), "without": started("0")}
        tokenizer = kinds["without"].tokenizer
        system, chat = words(tokenizer, 1, 800), words(tokenizer, 2, options.tokens)
        found: dict[str, list[Read]] = {}

        def note(name: str, measured: Callable[[], Read]) -> None:
            found.setdefault(name, []).append(measured())

        for number in range(options.repeats):
            agents = [system + words(tokenizer, 100 * number + i, 100) for i in range(4)]
            main_chat = f"{number} {chat}"
            for kind, session in kinds.items():
                read(session, main_chat, words(tokenizer, 7 + number, 20), agents[0])
                note(f"the main chat again, {kind}", lambda s=session, m=main_chat: read(s, m + "And then?"))  # type: ignore[misc]
                several = list[Read]()
                for agent in agents:
                    several.append(read(session, agent))
                    read(session, main_chat + "And then?")
                total = Read(sum(one.tokens for one in several), sum(one.seconds for one in several))
                note(f"four sub-agents, {kind}", lambda t=total: t)  # type: ignore[misc]
            begun = perf_counter()
            kinds["with the shelf"].save_read(lambda: False)
            note("written to disk", lambda b=begun: Read(0, perf_counter() - b))  # type: ignore[misc]
            for kind, memory in (("from disk", "2 GiB"), ("anew", "0")):
                session = started(memory)
                note(f"after a start, {kind}", lambda s=session, m=main_chat: read(s, m + "And?"))  # type: ignore[misc]
        for name, reads in found.items():
            print(told(name, reads))


if __name__ == "__main__":
    main()
