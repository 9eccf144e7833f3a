"""`specchat models list`, `show` and `find`."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.clean import one_line
from specchat.cli.completion import complete_pairs
from specchat.cli.exit_codes import ExitCode
from specchat.cli.models_here import here
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, reports_errors
from specchat.engine.errors import ModelError
from specchat.engine.protocol.ranges import SAMPLING

if TYPE_CHECKING:
    from specchat.models.offers import Offer
    from specchat.models.search import HubHit

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def list_models(models: Path | None, as_json: bool) -> None:
    """Print pairs and the models on this machine, those on the disk first and of these the fitting ones."""
    from specchat.models import words
    from specchat.models.machine import this_machine
    from specchat.models.offers import grouped, offers

    known, out = here(models), Output()
    default = known.configured.usual
    last = known.configured.used.find(default)
    found, problems = offers(known.catalog, known.library, this_machine(), last), known.library.problems
    if as_json:
        out.write_json({"default": default, "models": [_as_json(offer) for offer in found], "problems": problems})
        return
    rows = [
        (
            "*" if o.pair.id == default else " ",
            o.pair.id,
            one_line(o.pair.name, 40),
            words.amount(o),
            words.fits(o),
            words.speed(o),
            words.drafting(o),
            one_line(o.licence, 24),
        )
        for o in grouped(found)
    ]
    out.write(table([("", "id", "name", "size", "fits", "plain", "strategies", "licence"), *rows]))
    out.write(
        "* is loaded where nothing names another. plain: tokens a second, estimated by what memory gives here. "
        "specchat models show ID says more of one, and names other downloads of it. specchat models find WORDS "
        "searches the hub.\n"
    )
    for problem in problems:
        click.echo(problem, err=True)


@click.command()
@with_options(PAIR_OPTIONS[:1])
@click.argument("model", metavar="PAIR|NAME|PATH|REPO", shell_complete=complete_pairs)
@JSON
@reports_errors
def show(models: Path | None, model: str, as_json: bool) -> None:
    """Say what is known of a pair, of a model on this machine, or of a repository on the hub."""
    from specchat.config.errors import UnknownPair, nearest
    from specchat.models.machine import this_machine
    from specchat.models.names import pair_among
    from specchat.models.offers import offer_at, offer_of, variants_of

    known, machine, offer = here(models), this_machine(), None
    names: tuple[str, ...] = ()
    try:
        pair = pair_among(model, known.catalog, known.configured.used, known.library)
        others = variants_of(pair, known.catalog, known.library, machine)
        offer = replace(offer_of(pair, known.library, machine), variants=others)
    except UnknownPair as error:
        names = error.known
        if os.path.exists(os.path.expanduser(model)):
            offer = offer_at(Path(model), known.library, machine)
    if offer is not None:
        if as_json:
            Output().write_json(_as_json(offer) | {"template": dict(_template(offer))})
        else:
            Output().write("\n".join(_lines(offer)) + "\n")
        return
    if model.count("/") != 1:
        raise Problem(
            f'There is no pair, model or path "{model}" here.{nearest(model, names)} '
            "A repository is written OWNER/NAME.",
            ExitCode.USAGE,
        )
    from specchat.engine.fetch.listing import look_up, needed
    from specchat.engine.fetch.source import usual_hub
    from specchat.models import words

    listing = look_up(usual_hub(), model)
    files = needed(listing)
    about = {"repo": model, "licence": listing.licence, "gated": listing.gated, "files": [asdict(f) for f in files]}
    lines = [f"{model}: {words.size(sum(f.size for f in files))}, licence {listing.licence or 'not stated'}"]
    lines += [f"  {f.name}  {words.size(f.size)}" for f in files]
    if as_json:
        Output().write_json(about)
    else:
        Output().write("\n".join(lines) + "\n")


@click.command()
@click.argument("words", nargs=-1, required=True)
@JSON
@reports_errors
def find(words: Sequence[str], as_json: bool) -> None:
    """Search the hub for models whose name holds WORDS and that are read here, the most downloaded first."""
    from specchat.engine.fetch.source import usual_hub
    from specchat.models.search import search, sized

    hub = usual_hub()
    hits = list(sized(hub, search(hub, " ".join(words))))
    if as_json:
        Output().write_json([_hit_as_json(hit) for hit in hits])
    elif hits:
        head = ("repository", "size", "weights", "format", "downloads", "licence")
        Output().write(table([head, *map(_hit, hits)]))
    else:
        raise Problem(f'The hub has no model for "{" ".join(words)}".', ExitCode.DOWNLOAD)


def _hit_as_json(hit: "HubHit") -> dict[str, Any]:
    return {name: value for name, value in asdict(hit).items() if name != "settings"}


def _hit(hit: "HubHit") -> tuple[str, ...]:
    from specchat.models import words

    licence = f"{hit.licence}{', gated' if hit.gated else ''}"
    size = words.size(hit.size) if hit.size else ""
    form = f"{hit.format} {hit.file}".rstrip()
    return hit.repo, size, words.weights(hit.parameters), form, f"{hit.downloads:,}", licence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as columns; a wide character fills two places of a terminal."""
    from rich.cells import cell_len, set_cell_size

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _lines(offer: "Offer") -> list[str]:
    from specchat.models.words import about

    return [f"{name:<13} {one_line(words, 400)}" for name, words in (*about(offer), *_template(offer))]


def _template(offer: "Offer") -> tuple[tuple[str, str], ...]:
    """The habits of the target's chat template; those of a GGUF file are known once it is loaded."""
    from specchat.engine.text.habits import habits
    from specchat.engine.text.tokenizer import Tokenizer

    if offer.target is None or offer.target.format == "GGUF":
        return ()
    try:
        return habits(Tokenizer.read(offer.target.place))
    except ModelError as error:
        return (("template", error.message),)


def _as_json(offer: "Offer") -> dict[str, Any]:
    pair, target = offer.pair, offer.target
    return {
        "id": pair.id,
        "name": pair.name,
        "aliases": pair.aliases,
        "declared": offer.declared,
        "variant_of": pair.variant_of or None,
        "target": pair.spec.target.label,
        "target_quant": pair.spec.target.quant,
        "draft": pair.spec.draft.label if pair.spec.draft else None,
        "draft_quant": pair.spec.draft.quant if pair.spec.draft else None,
        "backend": offer.fit.backend,
        "strategy": pair.strategy,
        "sampling": {name: getattr(pair.sampling, name) for name in SAMPLING},
        "sampling_from": pair.sampling_source.name,
        "requires": asdict(pair.requires),
        "missing": [source.label for source in offer.missing],
        "size": offer.size,
        "fits": offer.fit.verdict,
        "reason": offer.fit.words,
        "tokens_s": offer.fit.speed.plain if offer.fit.speed else None,
        "drafted_tokens_s": offer.fit.speed.drafted if offer.fit.speed else None,
        "strategies": offer.strategies,
        "licence": offer.licence,
        "format": target.format if target else None,
        "architecture": target.architecture if target else None,
        "parameters": target.parameters if target else None,
        "quant": target.quant if target else None,
        "pictures": target.pictures if target else None,
        "activations": offer.fit.activations if len(offer.fit.forms) > 1 else None,
        "drafts": [{"name": p.name, "here": p.about is not None, "cost": p.cost} for p in offer.drafts.proposals],
    }
