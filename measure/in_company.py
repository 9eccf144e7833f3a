"""Measures replies that decode in one pass against turns: `python -m measure.in_company [--strategies draft lookup]`.

A target of 0.16B on the CPU whose layers cost what layers cost, and a draft of 0.01B that agrees after four of five
tokens. Four sub-agents, whose prompts of 900 tokens share 800, are asked at once, in company with their drafts and
without, and in turns; one is asked alone, too. A reply repeats 60 tokens of its prompt first. Texts are compared. Kinds
run in turn; figures are medians, with the least and the most.
"""

import argparse
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

from measure.agreeing_pair import write_pair
from measure.random_qwen3 import Mixture, Shape
from measure.read_again import words
from specchat.engine.loading import load
from specchat.engine.process.turns import ReplyTurns
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import Activations, ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

KINDS: dict[Activations, Mixture] = {"float32": "F16", "int8": "Q8_0", "bfloat16": "BF16"}
"""Weights of 16 or 8 bits, with rows of these."""
SHAPES = Shape(1024, 2816, 12, 3072, heads=8), Shape(384, 1024, 3, 3072, heads=3, kv_heads=3)
REPEATED = 60


class Round(NamedTuple):
    """Replies, with the speed of all after the last one has begun."""

    texts: dict[int, tuple[int, ...]]
    speed: float
    """Tokens a second."""
    longest_ms: float
    """Longest time between two tokens of a reply."""
    shared: int
    """Steps whose passes others shared."""
    tokens_a_step: float
    cpu_speed: float
    """Tokens a second of the processor, which other programs change less."""


def write(session: Session, requests: Sequence[Generate]) -> Round:
    """Have requests answered as a worker does that gets them at once."""
    turns = ReplyTurns(lambda: session.holder.back_s, together=lambda: session.holder.together)
    for request in requests:
        turns.add(request, session.generate(request))
    texts, first, last, longest, shared, tokens = dict[int, tuple[int, ...]](), 0.0, dict[int, float](), 0.0, 0, 0
    begun, steps, ran = set[int](), 0, 0.0
    while turns:
        assert turns.first
        event, now = turns.next(), perf_counter()
        if isinstance(event, Step):
            begun.add(event.id)
            if len(begun) == len(requests):
                first, ran = first or now, ran or process_time()
                tokens, steps = tokens + event.emitted, steps + 1
                longest = max(longest, now - last.get(event.id, now))
                last[event.id] = now
        if isinstance(event, Finished):
            texts[event.id], shared = event.token_ids, shared + event.stats.num_shared_steps
    wall_s, cpu_s = perf_counter() - first, process_time() - ran
    return Round(texts, tokens / wall_s, 1e3 * longest, shared, tokens / steps, tokens / cpu_s)


def told(name: str, found: list[float], unit: str) -> str:
    found.sort()
    return f"{name:48} {median(found):8.2f} {unit} ({found[0]:.2f}-{found[-1]:.2f})"


def prompts(session: Session, after: Sequence[int], number: int) -> list[tuple[int, ...]]:
    """Prompts of a round: what they share, what the reply repeats, and the token before that."""
    system, found = session.tokenizer.encode(words(session.tokenizer, 1, 800)), list[tuple[int, ...]]()
    for i in range(4):
        repeated = [system[7 * i + number]]
        for _ in range(REPEATED):
            repeated.append(after[repeated[-1]])
        own = session.tokenizer.encode(words(session.tokenizer, 100 * number + i, 100 - REPEATED))
        found.append((*system, *repeated, *own, *repeated[:2]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--activations", choices=KINDS, default="int8")
    parser.add_argument("--strategies", nargs="+", default=["plain"], help="of the four in turn")
    parser.add_argument("--agreeing", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with TemporaryDirectory() as root:
        after = write_pair(Path(root), options.agreeing, KINDS[options.activations], SHAPES).tolist()
        target, draft = (ModelSource(path=f"{root}/{name}.gguf", device="cpu") for name in ("target", "draft"))
        pair = PairSpec("m", "M", target, draft, context=2048, activations=options.activations)
        session = load(pair, lambda _: None)
    for cached in session.runner.caches.values():
        cached.model.use_threads(options.threads)
    company, found = session.holder.company, dict[str, list[float]]()
    passes, strategies = company._passes, company._strategies
    for number in range(options.repeats):
        requests = [
            Generate(i, (), Sampling(seed=i), Limits(options.tokens), Speculation.of(strategy), raw=prompt)
            for i, (prompt, strategy) in enumerate(
                zip(prompts(session, after, number), cycle(options.strategies), strict=False)
            )
        ]
        kinds = {
            "four in company": (requests, passes, strategies),
            "four in company, plainly": (requests, passes, ()),
            "four in turns": (requests, None, ()),
            "one alone": (requests[:1], None, ()),
        }
        texts = dict[int, tuple[int, ...]]()
        for kind, (asked, company._passes, company._strategies) in kinds.items():
            session.runner.earlier.forget("")
            written = write(session, asked)
            assert all(texts.setdefault(i, text) == text for i, text in written.texts.items())
            found.setdefault(f"{kind}: tokens a second", []).append(written.speed)
            found.setdefault(f"{kind}: tokens a second of the processor", []).append(written.cpu_speed)
            found.setdefault(f"{kind}: longest wait for a token", []).append(written.longest_ms)
            found.setdefault(f"{kind}: shared steps", []).append(written.shared)
            found.setdefault(f"{kind}: tokens a step", []).append(written.tokens_a_step)
        for slow in ("company, plainly", "turns"):
            for unit in ("tokens a second", "tokens a second of the processor"):
                ratio = found[f"four in company: {unit}"][-1] / found[f"four in {slow}: {unit}"][-1]
                found.setdefault(f"company over {slow}: {unit}", []).append(ratio)
    for name, values in found.items():
        print(told(name, values, "ms" if "wait" in name else ""))


if __name__ == "__main__":
    main()
