"""Replies of the demo pair under changes by users, and the memory of loading and capturing."""

import gc
import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from measure.gpu.checks import Check, command
from specchat.config.paths import demo_model
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.engine.session import Session
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PROMPTS = ("Tell me a story about a fox and a lamp.", "Write a function that adds two numbers.", "What is a river?")
ROUNDS = 60
TOKENS = 300
LOADS = 5
SLACK = 8 << 20
"""Bytes by which the driver's memory may vary between loads."""


def pair(device: Device) -> PairSpec:
    target, draft = (ModelSource(path=str(demo_model(name)), device=device) for name in ("target", "draft"))
    return PairSpec("demo", "Demo", target, draft)


@dataclass
class Doings:
    """Changes of strategy and a cancel at given polls of the session."""

    changes: dict[int, Speculation]
    cancel: int | None
    asked: int = 0

    def poll(self) -> Cancel | Change | None:
        self.asked += 1
        if self.asked == self.cancel:
            return Cancel(1)
        wanted = self.changes.pop(self.asked, None)
        return Change(1, wanted) if wanted else None


def finished(session: Session, request: Generate, doings: Doings) -> Finished:
    return next(event for event in session.generate(request, doings) if isinstance(event, Finished))


def fuzz(device: Device = "cuda", rounds: int = ROUNDS, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """Replies with random changes, cancels, stop strings and limits, each of which begins like the plain reply."""
    session, draw = load(pair(device), lambda _: None), random.Random(1)
    names = [status.name for status in session.info.strategies if status.available]
    ended: dict[str, int] = {}

    def speculation() -> Speculation:
        return replace(Speculation.of(draw.choice(names)), draft_length=draw.randint(1, MAX_DRAFT_LENGTH))

    for turn in range(rounds):
        sampling = Sampling(seed=turn, temperature=draw.choice((0.0, 0.7, 1.0)), top_p=draw.choice((0.9, 1.0)))
        messages = (Message("user", draw.choice(PROMPTS)),)
        asked = Generate(1, messages, sampling, Limits(tokens), Speculation.of("plain"))
        plain = finished(session, asked, Doings({}, None))
        stop = plain.text[draw.randrange(len(plain.text) + 1) :][: draw.randint(1, 6)] if draw.random() < 0.4 else ""
        limits = Limits(draw.randint(1, tokens), stop=(stop,) if stop else ())
        doings = Doings(
            {draw.randint(1, 80): speculation() for _ in range(3)}, draw.randint(1, 90) if draw.random() < 0.3 else None
        )
        made = finished(session, replace(asked, limits=limits, speculation=speculation()), doings)
        what = f"round {turn}: {sampling}, {limits}"
        kept = len(made.token_ids) - (1 if made.reason == "stop" and stop else 0)
        assert made.token_ids[:kept] == plain.token_ids[:kept], f"{what}: another text than the plain one"
        assert plain.text.startswith(made.text), f"{what}: {made.text[-40:]!r} is not how the plain text goes on"
        ended[made.reason] = ended.get(made.reason, 0) + 1
    return [{"ended by": reason, "replies": count} for reason, count in sorted(ended.items())]


def memory() -> list[dict[str, Any]]:
    """Bytes on the GPU after each load, after a reply with each strategy, and after unloading; five times."""
    found: list[dict[str, Any]] = []

    def used(when: str, turn: int) -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        found.append(
            {
                "load": turn,
                "when": when,
                "device MiB": (total - free) >> 20,
                "torch MiB": torch.cuda.memory_reserved() >> 20,
            }
        )
        return total - free

    kept = []
    for turn in range(LOADS):
        session = load(pair("cuda"), lambda _: None)
        used("loaded", turn)
        for status in session.info.strategies:
            if status.available:
                for length in (1, 5, MAX_DRAFT_LENGTH):
                    wanted = replace(Speculation.of(status.name), draft_length=length)
                    asked = Generate(1, (Message("user", PROMPTS[0]),), Sampling(), Limits(64), wanted)
                    finished(session, asked, Doings({}, None))
                used(f"after {status.name}", turn)
        del session
        gc.collect()
        torch.cuda.empty_cache()
        kept.append(used("unloaded", turn))
    assert kept[-1] <= kept[1] + SLACK, f"unloading leaves {(kept[-1] - kept[1]) >> 20} MiB more after {LOADS} loads"
    return found


CHECKS: dict[str, Check] = {"fuzz": lambda _: fuzz(), "memory": lambda _: memory()}


if __name__ == "__main__":
    command(CHECKS)()
