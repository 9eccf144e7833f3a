"""Works on one resident engine from several programs at once, and compares each reply with that of a lone engine.

    python -m measure.clients [--minutes 10] [--seed 0]

Two windows of the app and two chats by lines stay open, three loops of `specchat ask` come and go, and now and then one
of them is killed. Each reply has to be what an engine alone writes for its seed, each prompt that was sent has to be
saved, and no process may be left.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from specchat.config.catalog import Pair
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Finished, Loaded
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.requests import Generate, Load
from specchat.resident.control import engines

PROMPTS = ("Tell me a story about a fox.", "Count to nine.", "What is a lamp?", "Write a function that adds numbers.")
SEEDS, TOKENS, ASKS, KILLED = 3, 48, 3, 0.15
SPECCHAT = (sys.executable, "-m", "specchat")
PATIENCE_S = 60.0


@dataclass
class Found:
    """Counts, and descriptions of faults."""

    replies: int = 0
    killed: int = 0
    wrong: list[str] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)


def alone(pair: Pair) -> dict[tuple[str, int], str]:
    """Replies of a private engine, by prompt and seed."""
    engine = EngineClient()
    engine.start()
    engine.send(Load(pair.spec))
    assert any(isinstance(event, Loaded) for event in _until(engine, Loaded))
    texts = {}
    for number, (prompt, seed) in enumerate((prompt, seed) for prompt in PROMPTS for seed in range(SEEDS)):
        sampling, speculation = replace(pair.sampling, seed=seed), Speculation.of(pair.strategy)
        engine.send(Generate(number, (Message("user", prompt),), sampling, Limits(TOKENS), speculation))
        texts[prompt, seed] = next(event.text for event in _until(engine, Finished) if isinstance(event, Finished))
    engine.close()
    return texts


def _until(engine: EngineClient, kind: type) -> Iterator[object]:
    for event in engine.events(PATIENCE_S):
        yield event
        if isinstance(event, kind):
            return


def asking(texts: dict[tuple[str, int], str], chance: Random, ends: float, found: Found) -> None:
    """Ask again and again; some are killed while they write."""
    while time.monotonic() < ends:
        prompt, seed = chance.choice(list(texts))
        command = (*SPECCHAT, "ask", "--json", "--seed", str(seed), "--max-tokens", str(TOKENS), prompt)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if chance.random() < KILLED:
            time.sleep(chance.random() * 0.6)
            process.kill()
            process.communicate()
            found.killed += 1
            continue
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            found.wrong.append(f"ask {prompt!r} {seed}: no answer within {PATIENCE_S:.0f} s")
            continue
        found.replies += 1
        if process.returncode or json.loads(out)["text"] != texts[prompt, seed]:
            found.wrong.append(f"ask {prompt!r} {seed}: {process.returncode} {err[-300:]} {out[:200]}")


def chatting(window: int, chance: Random, ends: float, found: Found) -> None:
    """Keep a chat by lines open and write in it."""
    process = subprocess.Popen(
        (*SPECCHAT, "--plain", "--seed", "1", "--max-tokens", "12"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None
    number = 0
    while time.monotonic() < ends and process.poll() is None:
        number += 1
        prompt = f"Window {window} says {number}: {chance.choice(PROMPTS)}"
        process.stdin.write(f"{prompt}\n")
        found.sent.add(prompt)
        time.sleep(1.5 + 2 * chance.random())
    _, err = process.communicate(timeout=5 * PATIENCE_S)
    if process.returncode:
        found.wrong.append(f"window {window}: {process.returncode} {err[-300:]}")


def looking(window: int, seed: int, ends: float, expected: Path, found: Found) -> None:
    """Use a window of the app."""
    seconds = max(ends - time.monotonic(), 0.0)
    command = (sys.executable, "-m", "measure.clients_window", f"app {window}", f"{seconds}", f"{seed} {window}")
    process = subprocess.Popen((*command, str(expected)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=seconds + 2 * PATIENCE_S)
    if process.returncode:
        found.wrong.append(f"app {window}: {process.returncode} {err[-600:]}")
        return
    report = json.loads(out.splitlines()[-1])
    found.replies += report["replies"]
    found.sent |= set(report["sent"])
    found.wrong += report["wrong"]


def run(minutes: float, seed: int, home: Path) -> Found:
    """All programs for `minutes`, in a home of their own, once all is compiled there."""
    from specchat.config.catalog import read_catalog
    from specchat.config.paths import user_paths

    os.environ |= {"SPECCHAT_HOME": str(home), "SPECCHAT_ENGINE_MINUTES": "0"}
    catalog = read_catalog(user_paths(), None)
    texts, found = alone(catalog.find(catalog.default)), Found()
    subprocess.run((*SPECCHAT, "ask", "--no-save", "--max-tokens", "2", PROMPTS[0]), capture_output=True, check=True)
    ends = time.monotonic() + 60 * minutes
    programs = [partial(asking, texts, Random(f"{seed} ask {number}"), ends, found) for number in range(ASKS)]
    expected = home / "expected.json"
    expected.write_text(json.dumps([[prompt, number, text] for (prompt, number), text in texts.items()]))
    programs += [partial(looking, number, seed, ends, expected, found) for number in (1, 2)]
    programs += [partial(chatting, number, Random(f"{seed} window {number}"), ends, found) for number in (1, 2)]
    threads = [threading.Thread(target=program) for program in programs]
    for thread in threads:
        thread.start()
    time.sleep(10)
    pids = {found["pid"] for found in engines(user_paths().runtime, "status")}
    for thread in threads:
        thread.join()
    with closing(sqlite3.connect(user_paths().chats)) as db:
        saved = {text for (text,) in db.execute("SELECT text FROM message WHERE role = 'user'")}
    found.wrong += [f"not saved: {prompt}" for prompt in found.sent - saved]
    time.sleep(2)
    for pid in pids:
        try:
            os.kill(pid, 0)
            found.wrong.append(f"process {pid} is left")
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    return found


def main() -> None:
    """Run and report; exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="sc") as home:
        found = run(options.minutes, options.seed, Path(home))
    print(f"{found.replies} replies compared, {len(found.sent)} other prompts saved, {found.killed} programs killed")
    print("\n".join(found.wrong) or "nothing was wrong")
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
