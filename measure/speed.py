"""Speed and acceptance of every strategy against plain decoding, side by side in one run.

    python -m measure.speed [--prompts 40] [--runs 3] [--tokens 128] [--target DIR --draft DIR]

Every prompt is answered by every strategy in turn, `runs` times; the figure for a prompt is the median of its runs.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import click

from measure.machine import describe
from specchat.config.paths import PACKAGE, demo_model
from specchat.engine.api import Finished, Generate, Limits, Message, ModelSource, PairSpec, Sampling, Speculation
from specchat.engine.check import CheckPrompt
from specchat.engine.session import Session, load

CASES = {
    "plain": Speculation(),
    "draft x3": Speculation("draft", 3),
    "draft x5": Speculation("draft", 5),
    "draft x8": Speculation("draft", 8),
    "lookup x8": Speculation("lookup", 8),
    "lookup x15": Speculation("lookup", 15),
    "swift x4": Speculation("swift", 4),
}
"""Draft lengths beside the defaults show where the optimum lies."""


@dataclass
class Measured:
    """One case on one prompt: medians over the runs."""

    speed: float
    acceptance_length: float
    acceptance_rate: float
    tokens: tuple[int, ...]


def answer(
    session: Session, prompt: CheckPrompt, speculation: Speculation, sampling: Sampling, tokens: int
) -> Finished:
    *_, last = session.generate(Generate(0, prompt.messages, sampling, Limits(tokens), speculation))
    assert isinstance(last, Finished)
    return last


def measure(session: Session, prompt: CheckPrompt, sampling: Sampling, tokens: int, runs: int) -> dict[str, Measured]:
    """All cases on one prompt, interleaved."""
    replies: dict[str, list[Finished]] = defaultdict(list)
    available = {s.name for s in session.info.strategies if s.available}
    for _ in range(runs):
        for name, speculation in CASES.items():
            if speculation.strategy in available:
                replies[name].append(answer(session, prompt, speculation, sampling, tokens))
    return {
        name: Measured(
            median(r.stats.tokens_per_second for r in finished),
            finished[0].stats.mean_acceptance_length,
            finished[0].stats.draft_acceptance_rate,
            finished[0].token_ids,
        )
        for name, finished in replies.items()
    }


def report(title: str, results: list[dict[str, Measured]]) -> None:
    """A table: medians over prompts, quartiles of the speed-up, and how many texts were identical to plain's."""
    click.echo(f"\n{title} ({len(results)} prompts)")
    click.echo(f"{'':12} {'tokens/s':>9} {'x plain':>8} {'quartiles':>12} {'AL':>6} {'kept':>6} {'identical':>10}")
    for name in results[0]:
        ratios = [r[name].speed / r["plain"].speed for r in results]
        low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        spoken = [r[name] for r in results if r[name].acceptance_rate > 0]
        length = sum(m.acceptance_length for m in spoken) / len(spoken) if spoken else 1.0
        kept = sum(m.acceptance_rate for m in spoken) / len(spoken) if spoken else 0.0
        same = sum(r[name].tokens == r["plain"].tokens for r in results)
        click.echo(
            f"{name:12} {median(r[name].speed for r in results):9.0f} {median(ratios):8.2f}"
            f" {low:5.2f}-{high:5.2f} {length:7.2f} {kept:6.0%} {same:6}/{len(results)}"
        )


def pair_of(target: Path, draft: Path | None) -> PairSpec:
    draft_source = ModelSource(path=str(draft)) if draft else None
    return PairSpec("measured", target.name, ModelSource(path=str(target)), draft_source)


@click.command()
@click.option("--prompts", default=40, help="How many of the held-out prompts, spread over the categories.")
@click.option("--runs", default=3, help="Times each case answers each prompt.")
@click.option("--tokens", default=128, help="Longest reply in tokens.")
@click.option(
    "--target", type=click.Path(path_type=Path, exists=True), help="A checkpoint folder instead of the demo pair."
)
@click.option("--draft", type=click.Path(path_type=Path, exists=True), help="Its draft.")
def main(prompts: int, runs: int, tokens: int, target: Path | None, draft: Path | None) -> None:
    """Measure the demo pair, or one from local folders, on the held-out prompts."""
    pair = pair_of(target, draft) if target else pair_of(demo_model("target"), demo_model("draft"))
    session = load(pair, lambda _: None)
    click.echo(describe())
    info = session.info
    cost = f", draft step {info.draft_cost:.3f} of a target step" if info.draft_cost else ""
    click.echo(
        f"{info.name}: {info.device}; plain {info.plain_tokens_per_second:.0f} tokens/s at load{cost}; {info.exactness}"
    )
    rows = map(json.loads, (PACKAGE / "demo" / "prompts.jsonl").read_text(encoding="utf-8").splitlines())
    by_category: dict[str, list[CheckPrompt]] = defaultdict(list)
    for row in rows:
        by_category[row["category"]].append(CheckPrompt(row["id"], tuple(Message(**m) for m in row["messages"])))
    share = max(1, prompts // len(by_category))
    for title, sampling in (("greedy", Sampling()), ("T=0.7 top-p 0.9", Sampling(temperature=0.7, top_p=0.9, seed=1))):
        everything: list[dict[str, Measured]] = []
        copying: list[dict[str, Measured]] = []
        for category, chosen in by_category.items():
            results = [measure(session, p, sampling, tokens, runs) for p in chosen[:share]]
            everything += results
            if category in ("copy", "edit"):
                copying += results
        report(f"{title}, all categories", everything)
        if copying:
            report(f"{title}, copy and edit", copying)


if __name__ == "__main__":
    main()
