"""Compares `specchat serve` with a client of the same engine: `python -m measure.served [--rounds 20]`.

Both ask the demo pair the same prompts with the same seeds, in turn. Seconds are a client's: from the request to the
first text, and from there to the end.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from tempfile import TemporaryDirectory

import httpx2

from specchat.cli.prepare import engine_for, prepare
from specchat.cli.wishes import Wishes
from specchat.engine.events import Finished, Loaded, Step
from specchat.engine.options import Limits, Message
from specchat.engine.port import EnginePort
from specchat.engine.requests import Generate, Load

PROMPTS = ("Tell me a story about a fox.", "What is a lamp?", "Write a Python function that adds numbers.")
TOKENS = 120


def direct(engine: EnginePort, number: int, prompt: str, seed: int) -> tuple[float, float, str]:
    """Seconds to the first text, tokens per second after it, and the text, of the engine's own client."""
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
    return first - begun, last.stats.completion_tokens / (ended - first), last.text


def served(client: httpx2.Client, prompt: str, seed: int) -> tuple[float, float, str]:
    """The same of the server."""
    body = {"messages": [{"role": "user", "content": prompt}], "seed": seed, "max_tokens": TOKENS, "stream": True}
    body["stream_options"] = {"include_usage": True}
    begun = time.perf_counter()
    first, text, tokens = 0.0, "", 0
    with client.stream("POST", "/v1/chat/completions", json=body) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                if part := choice["delta"].get("content"):
                    first = first or time.perf_counter()
                    text += part
            tokens = chunk.get("usage", {}).get("completion_tokens", tokens)
    return first - begun, tokens / (time.perf_counter() - first), text


def main() -> None:
    """Measure and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with TemporaryDirectory(prefix="sc") as home:
        os.environ |= {"SPECCHAT_HOME": home, "SPECCHAT_ENGINE_MINUTES": "1"}
        command = (sys.executable, "-m", "specchat", "serve", "--port", "0")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].removesuffix("/v1")
        prepared = prepare(Wishes())
        ratios, firsts, different = [], [], 0
        with closing(engine_for(prepared, "measure")) as engine, httpx2.Client(base_url=url, timeout=120) as client:
            while client.get("/health").status_code != 200:
                time.sleep(0.1)
            engine.start()
            engine.send(Load(prepared.pair.spec))
            for event in engine.events(30):
                print(event)
                if isinstance(event, Loaded):
                    break
            for number in range(rounds + 2):
                prompt, seed = PROMPTS[number % len(PROMPTS)], number
                _, own, text = direct(engine, number + 1, prompt, seed)
                first, theirs, other = served(client, prompt, seed)
                if number >= 2:
                    ratios.append(theirs / own)
                    firsts.append(1e3 * first)
                    different += text != other
        process.terminate()
        process.wait(60)
        subprocess.run((sys.executable, "-m", "specchat", "engine", "stop"), check=True, capture_output=True)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"tokens per second of serve over the engine's own client: {middle:.3f} ({low:.3f}-{high:.3f})")
    print(f"first text after {statistics.median(firsts):.0f} ms ({min(firsts):.0f}-{max(firsts):.0f})")
    print(f"{different} of {rounds} texts differ")


if __name__ == "__main__":
    main()
