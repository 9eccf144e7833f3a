"""`specchat models`: the pairs there are, what they need, which of them this version runs; and commands about them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.clean import one_line
from specchat.cli.models_about import find, list_, show, table
from specchat.cli.models_changes import add, pull, rm
from specchat.cli.options import PAIR_OPTIONS, Passing, with_options
from specchat.cli.output import Output, reports_errors
from specchat.engine.backends import DEFAULT_BACKEND

if TYPE_CHECKING:
    from specchat.config.catalog import Catalog, Pair


@click.group(cls=Passing, invoke_without_command=True)
@with_options(PAIR_OPTIONS[:1])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
@reports_errors
def models(ctx: click.Context, /, models: Path | None, as_json: bool) -> None:
    """List the pairs, what they need, and which of them this version can run.

    With a command: list, add, download, delete, show or find models.
    """
    if ctx.invoked_subcommand is not None:
        return
    from specchat.config.catalog import read_catalog
    from specchat.config.paths import user_paths

    catalog = read_catalog(user_paths(), models)
    if as_json:
        Output().write_json(_as_json(catalog))
    else:
        Output().write(_as_text(catalog))


def _as_json(catalog: "Catalog") -> dict[str, Any]:
    pairs = [
        {
            "id": pair.id,
            "name": pair.name,
            "aliases": pair.aliases,
            "target": pair.spec.target.label,
            "target_quant": pair.spec.target.quant,
            "draft": pair.spec.draft.label if pair.spec.draft else None,
            "draft_quant": pair.spec.draft.quant if pair.spec.draft else None,
            "backend": pair.spec.backend,
            "context": pair.spec.context,
            "strategy": pair.strategy,
            "requires": asdict(pair.requires),
            "runs": not pair.unsupported,
            "reason": pair.unsupported,
        }
        for pair in catalog.pairs
    ]
    return {"default": catalog.default, "pairs": pairs}


def _as_text(catalog: "Catalog") -> str:
    from specchat.config.catalog import PROGRAM_GIB

    rows = [_row(pair, pair.id == catalog.default) for pair in catalog.pairs]
    reasons = sorted({pair.unsupported for pair in catalog.pairs if pair.unsupported})
    notes = [
        "* is the default.",
        "runs: on a GPU or on the CPU, in the memory given; with nf4, fp4 or int8 the target's layers are quantised.",
        f"memory: of it the program itself takes {PROGRAM_GIB:g} GiB, and the models the rest.",
        "specchat models list tells which of them this machine has the memory for.",
        "gguf, hf: by llama.cpp or transformers; specchat models show ID tells which package that still needs.",
        *(f"not yet: {r}." for r in reasons),
    ]
    return "\n".join([table(rows), *notes, ""])


def _row(pair: "Pair", default: bool) -> tuple[str, ...]:
    needs = pair.requires
    return (
        "*" if default else " ",
        pair.id,
        one_line(pair.name, 60),
        pair.spec.target.quant or "",
        "" if pair.spec.backend == DEFAULT_BACKEND else pair.spec.backend,
        "not yet" if pair.unsupported else "runs",
        f"{needs.ram_gib:g} GiB memory" if needs.ram_gib else "",
        f"{needs.vram_gib:g} GiB GPU" if needs.vram_gib else "",
        f"{needs.disk_gib:g} GiB disk" if needs.disk_gib else "",
    )


for command in (list_, add, pull, rm, show, find):
    models.add_command(command)
