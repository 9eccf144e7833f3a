"""Measures how much slower a chat is beside `specchat tune draft`: replies with the tune at work and stopped, in turns.

    python -m measure.beside_tune [--pair demo] [--rounds 40]

Chat and tune share the resident engine. The chat is one of four turns, each asked anew with all turns before it. Lines
are medians over rounds; ratios compare turn by turn.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from specchat.bench.interleaved import ratio_interval
from specchat.config.catalog import load_catalog
from specchat.config.paths import private_folder
from specchat.engine.protocol.events import Finished, Loaded, Step
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Generate, Load
from specchat.resident.shared import open_engine

PROMPTS = ("Tell me a story about a fox.", "Who was in it?", "Tell me another one.", "How does it end?")
TOKENS, PATIENCE_S, PAUSE_S = 64, 120.0, 0.3


@dataclass(frozen=True)
class Turn:
    """Milliseconds from the request to the first token, and to the last one."""

    first: float
    whole: float


def chat(engine: EnginePort, numbers: list[int]) -> list[Turn]:
    """The turns of one chat."""
    messages: tuple[Message, ...] = ()
    turns = []
    for prompt in PROMPTS:
        time.sleep(PAUSE_S)  # a user reads, and the tune goes on
        messages = (*messages, Message("user", prompt))
        numbers.append(len(numbers) + 1)
        begun, first = time.perf_counter(), 0.0
        engine.send(Generate(numbers[-1], messages, limits=Limits(TOKENS), speculation=Speculation.of("draft")))
        for event in engine.events(PATIENCE_S):
            if isinstance(event, Step) and not first:
                first = time.perf_counter() - begun
            if isinstance(event, Finished):
                messages = (*messages, Message("assistant", event.text))
                break
        turns.append(Turn(1e3 * first, 1e3 * (time.perf_counter() - begun)))
    return turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="sc") as folder:
        os.environ["SPECCHAT_HOME"] = folder
        engine = open_engine(private_folder(Path(folder) / "run"), None, "chat", 0)
        engine.start()
        engine.send(Load(load_catalog(None).find(options.pair).spec))
        next(event for event in engine.events(PATIENCE_S) if isinstance(event, Loaded))
        command = [sys.executable, "-m", "specchat", "tune", "draft", options.pair, "--replies", "1000000", "--json"]
        tune = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert tune.stdout is not None
        for line in tune.stdout:
            if json.loads(line).get("phase") == "replies":
                break
        found: dict[str, list[Turn]] = {"alone": [], "beside": []}
        numbers: list[int] = []
        for _ in range(options.rounds):
            for name, number in (("alone", signal.SIGSTOP), ("beside", signal.SIGCONT)):
                tune.send_signal(number)
                found[name] += chat(engine, numbers)
        tune.kill()
        engine.close()
    print(f"{options.rounds} chats of {len(PROMPTS)} turns with {options.pair}, {os.cpu_count()} cores")
    for name, turns in found.items():
        first, whole = median(turn.first for turn in turns), median(turn.whole for turn in turns)
        print(f"{name:7} first token {first:6.1f} ms, whole reply {whole:6.1f} ms")
    for what in ("first", "whole"):
        pairs = zip(found["alone"], found["beside"], strict=True)
        times, low, high = ratio_interval([log(getattr(b, what) / getattr(a, what)) for a, b in pairs])
        print(f"{what:7} beside / alone {times:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
