"""Measures replies that decode in one pass against turns: `python -m measure.in_company [--kind int8]`.

A random model of 0.16B. Four sub-agents, whose prompts of 900 tokens share 800, are asked at once, in
company and in turns; one is asked alone, too. Texts are compared. Kinds run in turn; figures are medians, with the
least and the most.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from measure.made_pairs import llama
from measure.read_again import words
from specchat.engine.loading import load
from specchat.engine.process.turns import ReplyTurns
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

KINDS = {
    "float32": ModelSource(device="cpu"),
    "int8": ModelSource(device="cpu", quant="int8", activations="int8"),
    "bfloat16": ModelSource(device="cpu", activations="bfloat16"),
    "gpu": ModelSource(device="cuda"),
}
"""Weights of 16 or 8 bits, with rows of these, or on a GPU."""


class Round(NamedTuple):
    """Replies, with the speed of all after the last one has begun."""

    texts: dict[int, tuple[int, ...]]
    speed: float
    """Tokens a second."""
    longest_ms: float
    """Longest time between two tokens of a reply."""
    shared: int
    """Steps whose passes others shared."""


def write(session: Session, requests: Sequence[Generate]) -> Round:
    """Have requests answered as a worker does that gets them at once."""
    turns = ReplyTurns(lambda: session.holder.back_s, together=lambda: session.holder.together)
    for request in requests:
        turns.add(request, session.generate(request))
    texts, first, last, longest, shared, tokens = dict[int, tuple[int, ...]](), 0.0, dict[int, float](), 0.0, 0, 0
    begun = set[int]()
    while turns:
        assert turns.first
        event, now = turns.next(), perf_counter()
        if isinstance(event, Step):
            begun.add(event.id)
            if len(begun) == len(requests):
                first = first or now
                tokens += event.emitted
                longest = max(longest, now - last.get(event.id, now))
                last[event.id] = now
        if isinstance(event, Finished):
            texts[event.id], shared = event.token_ids, shared + event.stats.num_shared_steps
    return Round(texts, tokens / (perf_counter() - first), 1e3 * longest, shared)


def told(name: str, found: list[float], unit: str) -> str:
    found.sort()
    return f"{name:48} {median(found):8.2f} {unit} ({found[0]:.2f}-{found[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="int8")
    parser.add_argument("--strategy", default="plain")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as root:
        llama(Path(root) / "m", hidden=1024, inner=2816, layers=12, heads=16, seed=1, context=2048)
        source = replace(KINDS[options.kind], path=str(Path(root) / "m"))
        session = load(PairSpec("m", "M", source, context=2048), lambda _: None)
    system, speculation = words(session.tokenizer, 1, 800), Speculation.of(options.strategy)
    passes, found = session.holder.company._passes, dict[str, list[float]]()
    for number in range(options.repeats):
        prompts = [system + words(session.tokenizer, 100 * number + i, 100) for i in range(4)]
        requests = [
            Generate(i, (), Sampling(seed=i), Limits(options.tokens), speculation, raw=prompt)
            for i, prompt in enumerate(prompts)
        ]
        kinds = {
            "four in company": (requests, True),
            "four in turns": (requests, False),
            "one alone": (requests[:1], True),
        }
        texts = dict[int, tuple[int, ...]]()
        for kind, (asked, company) in kinds.items():
            session.holder.company._passes = passes if company else None
            written = write(session, asked)
            assert all(texts.setdefault(i, text) == text for i, text in written.texts.items())
            found.setdefault(f"{kind}: tokens a second", []).append(written.speed)
            found.setdefault(f"{kind}: longest wait for a token", []).append(written.longest_ms)
            found.setdefault(f"{kind}: shared steps", []).append(written.shared)
        quick, slow = (found[f"four in {way}: tokens a second"][-1] for way in ("company", "turns"))
        found.setdefault("company over turns", []).append(quick / slow)
    for name, values in found.items():
        print(told(name, values, "ms" if "wait" in name else ""))


if __name__ == "__main__":
    main()
