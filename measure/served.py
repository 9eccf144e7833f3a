"""Compares `specchat serve` with a client of the same engine: `python -m measure.served [--rounds 20]`.

Both ask the demo pair the same prompts with the same seeds, in turn. Seconds are a client's, from the request on.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import httpx2

from specchat.cli.prepare import engine_for, prepare
from specchat.cli.wishes import Wishes
from specchat.engine.protocol.events import Finished, Loaded, Step
from specchat.engine.protocol.options import Limits, Message
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Generate, Load

PROMPTS = ("Tell me a story about a fox.", "What is a lamp?", "Write a Python function that adds numbers.")
TOKENS = 120


@dataclass(frozen=True)
class Measured:
    """A reply: milliseconds to its first text, its tokens per second for the client and for the engine."""

    first_ms: float
    client: float
    engine: float
    text: str


def direct(engine: EnginePort, number: int, prompt: str, seed: int) -> Measured:
    """A reply to the engine's own client."""
    prepared = prepare(Wishes())
    settings = prepared.preferences.settings(prepared.pair)
    sampling = replace(settings.sampling, seed=seed)
    request = Generate(
        number, (Message("user", prompt),), sampling, Limits(TOKENS, context="refuse"), settings.speculation
    )
    begun = time.perf_counter()
    first, last = 0.0, None
    engine.send(request)
    for event in engine.events(60):
        if isinstance(event, Step):
            first = first or time.perf_counter()
        elif isinstance(event, Finished):
            last = event
            break
    assert last is not None
    ended = time.perf_counter()
    stats = last.stats
    rate = stats.completion_tokens / (ended - begun)
    return Measured(1e3 * (first - begun), rate, stats.tokens_per_second, last.text)


def served(client: httpx2.Client, prompt: str, seed: int) -> Measured:
    """A reply of the server."""
    body = {"messages": [{"role": "user", "content": prompt}], "seed": seed, "max_tokens": TOKENS, "stream": True}
    body["stream_options"] = {"include_usage": True}
    begun = time.perf_counter()
    first, text, tokens, rate = 0.0, "", 0, 0.0
    with client.stream("POST", "/v1/chat/completions", json=body) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                if part := choice["delta"].get("content"):
                    first = first or time.perf_counter()
                    text += part
            if "usage" in chunk:
                tokens, rate = chunk["usage"]["completion_tokens"], chunk["metrics"]["tokens_per_second"]
    return Measured(1e3 * (first - begun), tokens / (time.perf_counter() - begun), rate, text)


@contextmanager
def demo_server(files: int | None = None) -> Iterator[tuple[str, EnginePort]]:
    """The address of a server of the demo pair in an empty home, and a client of its engine, once both are loaded.

    The server may have so many `files` open.
    """
    limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with TemporaryDirectory(prefix="sc") as home:
        os.environ |= {"SPECCHAT_HOME": home, "SPECCHAT_ENGINE_MINUTES": "1"}
        command = (sys.executable, "-m", "specchat", "serve", "--port", "0")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/v1")
        prepared = prepare(Wishes())
        with closing(engine_for(prepared, "measure")) as engine:
            while httpx2.get(f"{url}/health").status_code != 200:
                time.sleep(0.1)
            engine.start()
            engine.send(Load(prepared.pair.spec))
            assert any(isinstance(event, Loaded) for event in engine.events(60))
            yield url, engine
        process.terminate()
        process.wait(60)
        subprocess.run((sys.executable, "-m", "specchat", "engine", "stop"), check=True, capture_output=True)


def main() -> None:
    """Measure and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    pairs: list[tuple[Measured, Measured]] = []
    with demo_server() as (url, engine), httpx2.Client(base_url=url, timeout=120) as client:
        for number in range(rounds + 2):
            prompt, seed = PROMPTS[number % len(PROMPTS)], number
            pairs.append((direct(engine, number + 1, prompt, seed), served(client, prompt, seed)))
    pairs = pairs[2:]
    for name in ("client", "engine"):
        ratios = [getattr(theirs, name) / getattr(own, name) for own, theirs in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"tokens per second over the engine's own client, by the {name}: {middle:.3f} ({low:.3f}-{high:.3f})")
    firsts = [statistics.median(each.first_ms for each in side) for side in zip(*pairs, strict=True)]
    print(f"first text after {firsts[1]:.0f} ms, {firsts[0]:.0f} ms for the engine's own client")
    print(f"{sum(own.text != theirs.text for own, theirs in pairs)} of {rounds} texts differ")


if __name__ == "__main__":
    main()
