"""Faults that must not end in a traceback: a failing kernel, no compiler, a full GPU, a second engine."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from measure.gpu.checks import Check, command
from specchat.config.paths import demo_model
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.events import Counted, Event, Failed, Finished, Loaded
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.requests import Count, Generate, Load
from specchat.engine.protocol.stats import Stats
from specchat.engine.reply.cross_chat import CrossChatIndexer
from tests import fake

PATIENCE_S = 120.0
FREE = 200 << 20
"""Free memory of a full GPU."""


class Faulty:
    """A session whose first reply reads outside its memory; the prompt "well" gives a sound one."""

    def __init__(self, info: PairInfo) -> None:
        self.info = info
        self.cross_chat = CrossChatIndexer(Earlier(), lambda _: ())

    def count(self, request: Count) -> Counted:
        return Counted(request.id, 0, self.info.context)

    def generate(self, request: Generate, _: object) -> Iterator[Event]:
        import torch

        table = torch.ones(8, device="cuda")
        place = 0 if request.messages[-1].content == "well" else 1 << 40
        value = table[torch.tensor([place], device="cuda")].sum().item()
        yield Finished(request.id, "stop", str(value), (), Stats())


def faulty(pair: PairSpec, _: object, make_room: Callable[[], None]) -> Faulty:
    """A loader for the engine process."""
    make_room()
    return Faulty(replace(fake.INFO, id=pair.id))


def illegal() -> list[dict[str, Any]]:
    """A failed kernel is reported once, ends the process, and leaves the next one a working GPU."""
    engine = EngineClient(None, "measure.gpu.faults:faulty")
    pair = PairSpec("p", "P", ModelSource(path="/nowhere"))
    found = []
    engine.start()
    engine.send(Load(pair))
    for said in ("wrong", "well"):
        last = next(event for event in engine.events(PATIENCE_S) if isinstance(event, Loaded | Failed))
        assert isinstance(last, Loaded), f"not loaded: {last}"
        engine.send(Generate(1, (Message("user", said),)))
        ended = next((event for event in engine.events(PATIENCE_S) if isinstance(event, Finished | Failed)), None)
        found.append({"asked": said, "got": str(ended)})
        if said == "wrong":
            assert isinstance(ended, Failed), f"a failed kernel was not reported: {ended}"
            assert ended.kind == "died", f"the engine lives on: {ended}"
            assert ended.message.startswith("The GPU failed ("), ended.message
            engine.restart()
        else:
            assert isinstance(ended, Finished), f"the next engine does not work: {ended}"
    engine.close()
    return found


def python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def no_compiler() -> list[dict[str, Any]]:
    """Without compiled kernels and a compiler, loading gives a reason."""
    with TemporaryDirectory() as empty:
        asked = "from specchat.engine.hardware.gpu import find_gpu; print(find_gpu())"
        done = python(asked, PATH=empty, CC=f"{empty}/none", TRITON_CACHE_DIR=empty)
    assert done.stdout.startswith("Triton does not start: CC names"), done.stdout + done.stderr
    return [{"without a compiler": done.stdout.strip()}]


def full() -> list[dict[str, Any]]:
    """On a GPU filled by another program, the demo pair runs on the CPU and gives the reason."""
    source = (
        "import torch; free, _ = torch.cuda.mem_get_info(); "
        f"ballast = torch.empty(free - {FREE}, dtype=torch.uint8, device='cuda'); print('full', flush=True); input()"
    )
    holder = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "full", "the GPU could not be filled"
        place = where_the_demo_runs()
    finally:
        holder.kill()
        holder.wait()
    assert place.startswith("cpu"), f"it did not go to the CPU: {place}"
    return [{"on a full GPU": place}]


def where_the_demo_runs() -> str:
    """Device and note of the demo's target, loaded in its own process."""
    source = (
        "from specchat.engine.loading import load; from specchat.engine.protocol.pair import ModelSource, PairSpec; "
        f"info = load(PairSpec('p', 'P', ModelSource(path={str(demo_model('target'))!r})), lambda _: None).info; "
        "print(info.load.device, '|', info.notes.note)"
    )
    done = python(source)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def second() -> list[dict[str, Any]]:
    """Two engines at once, each with its own CUDA context."""
    command = [
        sys.executable,
        "-m",
        "specchat",
        "ask",
        "Tell me a story about a fox.",
        "--seed",
        "1",
        "--max-tokens",
        "200",
    ]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    texts = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "one of two engines failed"
    assert texts[0] == texts[1], "two engines at once write different texts"
    return [{"engines": 2, "characters": len(texts[0])}]


CHECKS: dict[str, Check] = {
    "illegal": lambda _: illegal(),
    "no-compiler": lambda _: no_compiler(),
    "full": lambda _: full(),
    "second": lambda _: second(),
}


if __name__ == "__main__":
    command(CHECKS)()
