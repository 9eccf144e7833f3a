"""Measures how long a short request waits: `python -m measure.in_turns [--tokens 4000] [--repeats 5]`.

A random model of 0.16B on the CPU, in an engine process. A title of 24 tokens is asked for alone, while a reply of 200
tokens is written, and while a prompt of `--tokens` is read, in turn; with what the title costs the long one.
"""

import argparse
import random
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from measure.made_pairs import llama
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Failed, Finished, Loaded, Loading, Started, Step
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate, Load

PATIENCE_S = 600.0
TITLE, REPLY = 24, 200
"""Tokens of the short reply and of the long one."""


def words(seed: int, count: int) -> str:
    drawn = random.Random(seed)
    return " ".join(drawn.choice(("fox", "lamp", "crab", "sea", "old", "said", "house")) for _ in range(count))


class Measured:
    """An engine that is asked, with the seconds of what it answers."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._number = 0
        self.began, self.first, self.ended = dict[int, float](), dict[int, float](), dict[int, float]()

    def ask(self, prompt: str, tokens: int) -> int:
        self._number += 1
        self.began[self._number] = perf_counter()
        request = Generate(self._number, (), limits=Limits(tokens), speculation=Speculation(), raw=prompt)
        self._engine.send(request)
        return self._number

    def until(self, number: int, kind: type[Step | Started | Finished]) -> None:
        """Take events until one of a kind comes of a reply."""
        for event in self._engine.events(PATIENCE_S):
            if isinstance(event, Failed):
                raise SystemExit(event.message)
            if isinstance(event, Loading | Loaded) or event.id is None:
                continue
            if isinstance(event, Step):
                self.first.setdefault(event.id, perf_counter())
            if isinstance(event, Finished):
                self.ended[event.id] = perf_counter()
            if event.id == number and isinstance(event, kind):
                return

    def waited(self, number: int) -> float:
        return self.first[number] - self.began[number]

    def lasted(self, number: int) -> float:
        return self.ended[number] - self.began[number]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with TemporaryDirectory() as root:
        llama(Path(root) / "m", hidden=1024, inner=2816, layers=12, heads=16, seed=1, context=options.tokens + 4096)
        engine = EngineClient(Path(root) / "log")
        engine.start()
        engine.send(Load(PairSpec("m", "M", ModelSource(path=str(Path(root) / "m"), device="cpu"))))
        for event in engine.events(PATIENCE_S):
            if isinstance(event, Loaded | Failed):
                break
        measured = Measured(engine)
        for turn in range(options.repeats):
            for beside in ("alone", "while a reply is written", "while a prompt is read"):
                reading = beside == "while a prompt is read"
                prompt = words(100 * turn + len(beside), options.tokens if reading else 200)
                long = measured.ask(prompt, 1 if reading else REPLY)
                if beside == "alone":
                    measured.until(long, Finished)
                    found.setdefault("a reply alone", []).append(measured.lasted(long))
                elif not reading:
                    measured.until(long, Step)
                title = measured.ask(words(turn, 20), TITLE)
                measured.until(title, Finished)
                found.setdefault(f"the first token of a title {beside}", []).append(measured.waited(title))
                found.setdefault(f"a title {beside}", []).append(measured.lasted(title))
                if beside != "alone":
                    if long not in measured.ended:
                        measured.until(long, Finished)
                    name = "a prompt with a title beside it" if reading else "a reply with a title beside it"
                    found.setdefault(name, []).append(measured.lasted(long))
        engine.close()
    for name, seconds in found.items():
        seconds.sort()
        print(f"{name:55} {median(seconds):7.2f} s ({seconds[0]:.2f}-{seconds[-1]:.2f})")


if __name__ == "__main__":
    main()
