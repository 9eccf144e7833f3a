"""Steps in bfloat16 with nested NF4 weights at Qwen3-8B's shapes: caches and texts bit for bit, and a profile."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from measure.gpu.checks import Check, command
from specchat.bench.published import PUBLISHED, Shapes, narrowed
from specchat.config.paths import demo_model
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import random
from specchat.engine.gpu_checks.demo import profiled, write
from specchat.engine.gpu_checks.demo import runner as demo_pair
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.config import ModelConfig

LAYERS = 4
LENGTHS = (1, 2, 5, 15)
TESTED: tuple[tuple[str, Acceptance], ...] = (("draft", "ratio"), ("lookup", "ratio"), ("draft", "block"))
"""Strategies and acceptance tests; `block` differs from `ratio` for drafts sampled from a model."""
SAMPLINGS = {
    "greedy": Sampling(),
    "filtered": Sampling(seed=4, temperature=0.8, top_k=50, top_p=0.9),
    "penalised": Sampling(seed=5, temperature=1.0, repetition_penalty=1.2, frequency_penalty=0.1),
}


@dataclass(frozen=True)
class Setting:
    """Device and size of a pair. The draft has the target's weights, unquantised, so that it is often but not always
    right."""

    device: torch.device
    dtype: torch.dtype
    quant: Quant | None
    shapes: Shapes
    prompt: int = 180
    tokens: int = 400
    """A text crosses positions 256 and 512, boundaries of attention's splits."""

    @property
    def context(self) -> int:
        return self.prompt + self.tokens + 100

    def decoder(self, quant: Quant | None) -> DeviceDecoder:
        config = self.shapes.target
        weights = random(config, quant, self.device, self.dtype, 0)
        return DeviceDecoder(config, weights, self.context, self.device, self.dtype)

    def runner(self, captured: bool) -> Runner:
        vocab = self.shapes.target.vocab
        runner = device_runner(self.decoder(self.quant), self.decoder(None), vocab, self.device, captured)
        # Random weights are never confident: the length policy would end every draft at once.
        runner.executor.policies.off = True
        return runner


def on_gpu(layers: int = LAYERS, vocab: int | None = None) -> Setting:
    shapes = PUBLISHED["qwen3-8b"].cut(layers)
    config: ModelConfig = narrowed(shapes.target, vocab=vocab or shapes.target.vocab)
    return Setting(torch.device("cuda"), torch.bfloat16, "nf4", replace(shapes, target=config))


def text(setting: Setting) -> list[int]:
    drawn = torch.randint(setting.shapes.target.vocab, (setting.prompt,), generator=torch.Generator().manual_seed(2))
    return [int(token) for token in drawn]


def reply(
    runner: Runner, setting: Setting, strategy: str, length: int, sampling: Sampling, acceptance: Acceptance
) -> list[int]:
    """Tokens that a strategy writes after the setting's prompt."""
    return write(runner, strategy, length, sampling, text(setting), setting.tokens, acceptance)


def caches(setting: Setting, starts: tuple[int, ...] = (0, 224, 500)) -> list[dict[str, Any]]:
    """Compare caches after 64 tokens, written in passes of 64, 1, 16 and 32 rows from several positions."""
    model, found = setting.decoder(setting.quant), []
    tokens = torch.randint(setting.shapes.target.vocab, (64,), generator=torch.Generator().manual_seed(3))
    fed = tokens.to(setting.device, torch.int32)
    for start in starts:
        held: dict[int, list[torch.Tensor]] = {}
        for rows in (64, 1, 16, 32):
            for first in range(0, 64, rows):
                length = torch.tensor([start + first], dtype=torch.int32, device=setting.device)
                model.forward(fed[first : first + rows].clone(), length, rows)
            held[rows] = [cache[:, start : start + 64].clone() for entries in model.entries for cache in entries]
            same = all(torch.equal(a, b) for a, b in zip(held[64], held[rows], strict=True))
            found.append({"from": start, "rows a pass": rows, "as by 64": same})
            assert same, f"from {start} on, passes of {rows} rows leave another cache than one of 64"
    return found


def strategies(setting: Setting) -> list[dict[str, Any]]:
    """Every strategy, length and sampling in captured graphs, against plain eager launches."""
    eager, captured, found = setting.runner(False), setting.runner(True), []
    for name, sampling in SAMPLINGS.items():
        plain = reply(eager, setting, "plain", 0, sampling, "coupled")
        for strategy in captured.drafters:
            for length in (0,) if strategy == "plain" else LENGTHS:
                written = reply(captured, setting, strategy, length, sampling, "coupled")
                place = next((i for i, (a, b) in enumerate(zip(written, plain, strict=True)) if a != b), None)
                found.append({"sampling": name, "strategy": strategy, "length": length, "differs from": place})
                assert place is None, f"{strategy} of {length}, {name}, differs from plain at token {place}"
    return found


def ratio(setting: Setting) -> list[dict[str, Any]]:
    """Captured graphs against eager launches with the tests ratio and block: the same program and text."""
    eager, captured, found = setting.runner(False), setting.runner(True), []
    for name, sampling in list(SAMPLINGS.items())[1:]:
        for strategy, judged in TESTED:
            one, other = (reply(r, setting, strategy, 5, sampling, judged) for r in (eager, captured))
            found.append({"sampling": name, "strategy": strategy, "acceptance": judged, "same": one == other})
            assert one == other, f"{strategy}, {name}, {judged}: captured graphs write something else than eager ones"
    return found


def eager_step(setting: Setting) -> list[dict[str, Any]]:
    """A few launches of everything, for sanitizers."""
    runner = setting.runner(False)
    short = replace(setting, tokens=4)
    written = [reply(runner, short, strategy, 2, SAMPLINGS["filtered"], "coupled") for strategy in ("plain", "draft")]
    assert written[0] == written[1], "the draft's text is not the plain one"
    return [{"tokens": len(written[0])}]


def demo_step(demo: Path) -> list[dict[str, Any]]:
    """The same by the demo pair, a tree too, for tools that slow launches down even more."""
    pair, prompt = demo_pair(demo, "nf4", captured=False), range(20, 60)
    drafting = ("plain", 0), ("draft", 3), ("draft-tree", 5)
    written = [write(pair, name, length, SAMPLINGS["filtered"], prompt, 5) for name, length in drafting]
    assert written[0] == written[1] == written[2], "a draft's text is not the plain one"
    return [{"tokens": len(written[0])}]


def trace(setting: Setting, out: Path) -> list[dict[str, Any]]:
    """Device time by kernel over ten captured steps of five drafts, from `profiled`."""
    runner, prompt = setting.runner(True), text(setting)
    runner.target.begin(prompt)
    drafter = runner.drafters["draft"]
    drafter.begin(prompt)
    made = runner.reply(Sampling(), list(prompt), ())

    def ten() -> None:
        for _ in range(10):
            made.step(drafter, 5, "coupled")

    ten()
    out.mkdir(parents=True, exist_ok=True)
    found = profiled(ten, out)
    made.close()
    return found


SMALL_VOCAB = 12_000
"""For programs that slow launches down a hundredfold."""
CHECKS: dict[str, Check] = {
    "caches": lambda _: caches(on_gpu()),
    "strategies": lambda _: strategies(on_gpu()),
    "ratio": lambda _: ratio(on_gpu()),
    "eager-step": lambda _: eager_step(on_gpu(2, SMALL_VOCAB)),
    "demo-step": lambda _: demo_step(demo_model("target").parent),
    "trace": lambda out: trace(on_gpu(36), out),
}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
