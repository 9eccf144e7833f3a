"""Measures a trained draft beside the pair's own, at several lengths, on the prompts that it did not learn from.

    python -m measure.trained PAIR FOLDER --prompts FILE [--lengths 15,5]

FOLDER holds the draft, as `specchat tune draft` leaves it in `finished`; FILE is the one that it learnt from.
"""

from dataclasses import replace
from pathlib import Path

import click

from specchat.bench.prompts import read_prompts
from specchat.bench.report import describe
from specchat.config.catalog import read_catalog
from specchat.config.paths import user_paths
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.tune import gain
from specchat.tune.gain import Side, compared
from specchat.tune.replies import questions


@click.command()
@click.argument("pair")
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--prompts", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--lengths", default="15,5", show_default=True)
@click.option("--limit", default=25, show_default=True, help="Prompts, at most.")
def main(pair: str, folder: Path, prompts: Path, lengths: str, limit: int) -> None:
    """Print a line for each length."""
    spec = read_catalog(user_paths(), None).find(pair).spec
    own = spec.draft
    assert own is not None
    gain.PROMPTS = limit
    _, held_out = questions([one.messages for one in read_prompts(prompts)], Sampling(), 1)
    spec = replace(spec, heads={})
    trained = replace(spec, draft=replace(own, path=str(folder), repo=None, revision=None))
    click.echo(describe(("specchat", "torch")))
    for length in map(int, lengths.split(",")):
        by_draft = [Speculation.of("draft", length)]
        found = compared(Side(spec, by_draft), Side(trained, by_draft), held_out, lambda _: None, lambda _: None)
        made = found.gain
        click.echo(
            f"{prompts.stem}, {length} tokens: {made.times:.2f} ({made.low:.2f}-{made.high:.2f}) times as fast; "
            f"{found.before.tokens_per_second:,.0f} tokens/s before, {found.after.tokens_per_second:,.0f} after"
        )


if __name__ == "__main__":
    main()
