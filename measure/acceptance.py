"""Compares the acceptance tests `ratio` and `block` on the demo pair: `python -m measure.acceptance`.

Replies are sampled at temperature 1 with `block`. The script computes the expected number of accepted tokens of each
drafted chain by either test, so both see the same drafts without sampling noise. Whole drafts ignore the length policy.
"""

import argparse
from collections.abc import Sequence
from statistics import mean, stdev

from torch import Tensor

from specchat.bench import DEMO_PROMPTS
from specchat.bench.prompts import read_prompts, spread
from specchat.config.catalog import load_catalog
from specchat.engine.decoding import acceptance
from specchat.engine.decoding.acceptance import chance, judge_block
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.requests import Generate

TOKENS = 96


class Both:
    """Tests by `block`, and records the expected accepted tokens of both tests."""

    def __init__(self) -> None:
        self.ratio: list[float] = []
        self.block: list[float] = []

    def __call__(
        self, logits: Tensor, tokens: Sequence[int], q: Sequence[Tensor], position: int, sampler: Sampler, of: History
    ) -> tuple[int, int]:
        laws = []
        for row, token in zip(logits, tokens, strict=False):
            laws.append(sampler.probabilities(sampler.scores(row, of)))
            of.push(token)
        for token in tokens:
            of.pop(token)
        shares = [float(p[token] / drawn[token]) for p, drawn, token in zip(laws, q, tokens, strict=True)]
        reached, stays, kept = [1.0], 1.0, 0.0
        for share in shares:
            reached.append(min(reached[-1] * share, 1.0))
            stays *= min(share, 1.0)
            kept += stays
        self.ratio.append(kept)
        kept, refused = 0.0, 1.0
        for length in range(len(tokens), 0, -1):
            passing, total = chance(length, reached, laws, q)
            kept += length * refused * passing / total
            refused *= 1 - passing / total
        self.block.append(kept)
        return judge_block(logits, tokens, q, position, sampler, of)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--prompts", type=int, default=40)
    options.add_argument("--temperature", type=float, default=1.0)
    asked = options.parse_args()
    chats = [p.messages for p in spread(read_prompts(DEMO_PROMPTS), asked.prompts)]
    session = load(load_catalog(None).find("demo").spec, lambda _: None)
    for strategy in ("draft", "swift"):
        for whole in (False, True):
            session.runner.executor.policies.off = whole
            for length in (5, 12):
                both = Both()
                setattr(acceptance, judge_block.__name__, both)
                for seed, chat in enumerate(chats):
                    sampling = Sampling(seed=seed, temperature=asked.temperature)
                    speculation = Speculation(strategy, length, "block")
                    for _ in session.generate(Generate(0, chat, sampling, Limits(TOKENS), speculation, cold=True)):
                        pass
                more = [b - r for b, r in zip(both.block, both.ratio, strict=True)]
                print(
                    f"{strategy} x{length}{', whole' if whole else ''}: "
                    f"ratio {mean(both.ratio):.3f}, block {mean(both.block):.3f} of a draft stay, "
                    f"more {mean(more):.4f} +- {stdev(more) / len(more) ** 0.5:.4f}, {len(more)} drafts",
                    flush=True,
                )


if __name__ == "__main__":
    main()
