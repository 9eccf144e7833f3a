"""Counts where two pairs of one tokenizer differ: `python -m measure.two_pairs FIRST SECOND [--prompts FILE]`.

Each folder holds a `target` and a `draft`. All prompts are answered greedily by both pairs, plainly and with the draft,
in turns. Speeds of whole replies tell two things: how fast steps are, and which share of the time went into reading the
prompt. Rows for each kind of prompt and each length of reply tell them apart.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median, quantiles

import click

from specchat.bench.contender import BenchPrompt, Run
from specchat.bench.interleaved import STOPS, Sample, measure
from specchat.bench.ours import Ours
from specchat.bench.prompts import read_prompts, shipped_prompts, spread
from specchat.bench.report import describe
from specchat.bench.table import aligned
from specchat.engine.loading import load
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec

LENGTHS = ((1, 12), (13, 24), (25, 48), (49, 96))
"""Tokens of replies that are told apart."""
HEAD = ("", "prompts", "read", "written", "a step", "accepted", "reading", "steps", "whole")


@click.command()
@click.argument("folders", nargs=2, type=click.Path(exists=True, path_type=Path))
@click.option("--prompts", type=click.Path(exists=True, path_type=Path), help="[default: those of the demo pair]")
@click.option("--limit", default=60, show_default=True)
@click.option("--repeats", default=2, show_default=True)
@click.option("--tokens", default=96, show_default=True)
@click.option("--length", default=15, show_default=True, help="Tokens of a draft.")
def main(folders: tuple[Path, Path], prompts: Path | None, limit: int, repeats: int, tokens: int, length: int) -> None:
    """Print a table for each pair, then one of the prompts whose replies are equally long."""
    sessions = [load(_spec(folder), lambda _: None) for folder in folders]
    asked = [
        BenchPrompt(one.id, one.category, one.messages, tuple(sessions[0].tokenizer.prompt(one.messages)))
        for one in spread(read_prompts(prompts or shipped_prompts("demo")), limit)
    ]
    by_draft = Speculation.of("draft", length)
    contenders = [
        Ours(session, how, Sampling(), name=f"{number} {how.strategy}")
        for number, session in enumerate(sessions)
        for how in (Speculation(), by_draft)
    ]
    with STOPS.counting():
        samples = [*measure(contenders, asked, repeats, tokens, lambda _: None, lambda *_: None)]
    replies = [_by_prompt(samples, f"{number} ") for number in (0, 1)]
    click.echo(f"{describe(('specchat', 'torch'))}\n{len(asked)} prompts, {repeats} times, drafts of {length}\n")
    kinds = [*dict.fromkeys(one.category for one in asked)]
    for folder, found in zip(folders, replies, strict=True):
        every = [*found.values()]
        rows = [(kind, _row([one for one in every if one[0].category == kind])) for kind in kinds]
        for low, high in LENGTHS:
            rows.append((f"{low} to {high} tokens", _row([one for one in every if low <= _written(one) <= high])))
        click.echo(f"{folder}\n{aligned([HEAD, *_whole(rows), ('all', *_row(every))])}\n")
    same = {name for name, one in replies[0].items() if _written(one) == _written(replies[1][name])}
    alike = [[one for name, one in found.items() if name in same] for found in replies]
    rows = [(str(folder), _row(some)) for folder, some in zip(folders, alike, strict=True)]
    click.echo(f"replies of equal length\n{aligned([HEAD, *_whole(rows)])}")


Reply = tuple[BenchPrompt, list[Run], list[Run]]
"""A prompt with its plain and its drafted replies."""


def _spec(folder: Path) -> PairSpec:
    target, draft = (ModelSource(path=str(folder / name), device="cpu") for name in ("target", "draft"))
    return PairSpec(folder.name, folder.name, target, draft)


def _by_prompt(samples: Iterable[Sample], which: str) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    for sample in samples:
        if sample.contender.startswith(which):
            _, plain, drafted = found.setdefault(sample.prompt.id, (sample.prompt, [], []))
            (drafted if sample.contender.endswith("draft") else plain).append(sample.run)
    return found


def _written(one: Reply) -> int:
    return len(one[1][0].tokens)


def _whole(rows: Iterable[tuple[str, tuple[str, ...]]]) -> Iterable[tuple[str, ...]]:
    return ((name, *row) for name, row in rows if row)


def _row(some: list[Reply]) -> tuple[str, ...]:
    """Means of tokens, what a step brings, reading's share of a plain reply, and speeds over plain; empty for none."""
    if not some:
        return ()
    stats = [run.stats for _, _, drafted in some for run in drafted[:1] if run.stats is not None]
    steps, drafts = sum(one.num_steps for one in stats), sum(one.num_draft_tokens for one in stats)
    accepted = sum(one.num_accepted_draft_tokens for one in stats)
    plain = [run for _, runs, _ in some for run in runs]
    reading = sum(run.before_ms for run in plain) / sum(1e3 * run.seconds for run in plain)
    return (
        str(len(some)),
        f"{sum(len(prompt.tokens) for prompt, _, _ in some) / len(some):.0f}",
        f"{sum(map(_written, some)) / len(some):.0f}",
        f"{sum(one.completion_tokens for one in stats) / max(1, steps):.2f}",
        f"{accepted / max(1, drafts):.0%}",
        f"{reading:.0%}",
        _times([_ratio(one, lambda run: run.stats.ran_ms if run.stats else 0.0) for one in some]),
        _times([_ratio(one, lambda run: run.seconds) for one in some]),
    )


def _ratio(one: Reply, time: Callable[[Run], float]) -> float:
    """Speed of a drafted reply over the plain one, each the median of its repeats."""
    plain, drafted = (median(map(time, runs)) for runs in one[1:])
    return plain / drafted


def _times(ratios: list[float]) -> str:
    """Median with quartiles."""
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    main()
