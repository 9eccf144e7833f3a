"""`specchat models add`, `pull` and `rm`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.download import ask_for, fetch
from specchat.cli.exit_codes import ExitCode
from specchat.cli.models_here import Here, agreed, here, source_named
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, reports_errors

if TYPE_CHECKING:
    from specchat.engine.protocol.pair import ModelSource
    from specchat.models.library import FoundModel

YES = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")


@click.command()
@with_options(PAIR_OPTIONS[:1])
@click.argument("model", metavar="PATH|REPO")
@click.option("--file", metavar="NAME", help="Which of several GGUF files.")
@click.option("--draft", metavar="PATH|REPO", help="The model that drafts; OWNER/NAME/FILE.gguf names one of several.")
@click.option("--id", "id_", metavar="ID", help="What to call the pair.  [default: by its model's name]")
@reports_errors
def add(models: Path | None, model: str, file: str | None, draft: str | None, id_: str | None) -> None:
    """Write a pair into models.toml, after a look at its models.

    Of a repository that is not here only settings and tokenizer are fetched for that, some MB; of GGUF files nothing.
    """
    from specchat.engine.fetch.cached import absent
    from specchat.models.check import add as added
    from specchat.models.declare import as_toml
    from specchat.models.machine import this_machine
    from specchat.models.names import found_model
    from specchat.models.which import chosen

    known = here(models)
    before = known.configured.used.find(model) if found_model(model, known.library) is None else None
    if before is not None:
        model, draft = before.spec.target.label, draft or (before.spec.draft.label if before.spec.draft else None)
    target = chosen(known.hub, source_named(model, known.library), file)
    drafting = chosen(known.hub, source_named(draft, known.library)) if draft else None
    pair = ((target, model), (drafting, draft) if drafting and draft else None)
    written = added(known.hub, known.file, known.catalog, *pair, this_machine(), id_ or "")
    out = Output()
    out.write(f"{as_toml(written.table)}Written to {known.file}.\n")
    if drafting is None:
        _propose(out, known, target)
    elif written.cost:
        out.write(f"{Path(drafting.label).name} drafts, but {written.cost}.\n")
    if absent(known.hub, [source for source in (target, drafting) if source]):
        out.write(f"specchat models pull {written.table['id']} downloads it.\n")


def _propose(out: Output, known: Here, target: "ModelSource") -> None:
    """Name what could draft, and why what looks like it cannot."""
    from specchat.models.drafts import drafts_for

    found = next((f for f in known.library.models if _holds(f, target)), None)
    if found is None:
        return
    drafts = drafts_for(found.about, known.library)
    for proposal in drafts.proposals[:3]:
        cost = f", but {proposal.cost}" if proposal.cost else ""
        out.write(f"{proposal.name} could draft for it{cost}: --draft {proposal.source.label}\n")
    for reason in drafts.refused[:3]:
        out.write(f"{reason}\n")


def _holds(found: "FoundModel", source: "ModelSource") -> bool:
    """True if `found` is the model at `source`."""
    path = found.about.place
    if source.repo is None:
        return str(path) == source.path
    return found.repo == source.repo and (path.name == source.file or source.file is None)


@click.command()
@with_options(PAIR_OPTIONS[:1])
@click.argument("model", metavar="PAIR|REPO", shell_complete=complete_pairs)
@click.option("--file", metavar="NAME", help="Which of several GGUF files.")
@YES
@reports_errors
def pull(models: Path | None, model: str, file: str | None, yes: bool) -> None:
    """Download the models of PAIR, or REPO; what was begun before goes on where it was.

    Says first how much it is and where it goes, and asks. ctrl+c stops; what was fetched is kept.
    """
    from specchat.models.machine import missing_packages, unable
    from specchat.models.pull import order

    known = here(models)
    sources, pair = _sources(model, known), known.catalog.declared(model)
    ordered = order(known.hub, sources, file)
    out = Output()
    if not ordered.missing:
        fetch(ordered)
        out.write(f"{model} is all here.\n")
        return
    ask_for(ordered, unable(pair.spec, missing_packages()) if pair else "")
    agreed("Download it?", yes)
    folders = fetch(ordered)
    for folder in folders:
        out.write(f"{folder}\n")


def _sources(model: str, known: Here) -> "list[ModelSource]":
    """The repositories of a pair, or the one that is named."""
    pair = known.catalog.declared(model)
    if pair is None:
        source = source_named(model, known.library)
        if source.repo is None:
            raise Problem(f"{model} is on this machine already.", ExitCode.USAGE)
        return [source]
    sources = [source for source in pair.spec.sources if source.repo]
    if not sources:
        where = "are folders" if pair.spec.target.server is None else "run on a server"
        raise Problem(f"Pair {pair.id} has nothing to download: its models {where}.", ExitCode.USAGE)
    return sources


@click.command()
@with_options(PAIR_OPTIONS[:1])
@click.argument("model", metavar="PAIR|REPO", shell_complete=complete_pairs)
@YES
@reports_errors
def rm(models: Path | None, model: str, yes: bool) -> None:
    """Delete the downloaded models of PAIR, or REPO, and say how much that frees.

    A model that another pair here needs stays. A pair of your own models.toml is taken out of it too.
    """
    from specchat.models import words
    from specchat.models.declare import own_ids, remove_pair
    from specchat.models.names import found_model
    from specchat.models.remove import removal, remove

    known = here(models)
    pair = known.catalog.declared(model)
    own = pair is not None and pair.id in own_ids(known.file)
    found = found_model(model, known.library) if pair is None else None
    repos = [s.repo for s in pair.spec.sources if s.repo] if pair else [found[0].repo if found else model]
    going = removal(known.hub, [repo for repo in repos if repo], known.catalog, pair.id if pair else "")
    for sentence in going.kept:
        click.echo(sentence, err=True)
    if not going.repos and not own:
        kept = _keeper(found[0]) if found else ""
        raise Problem(f"{model} has nothing that could be deleted. {kept}".strip(), ExitCode.USAGE)
    what = [f"{' and '.join(going.repos)} ({words.size(going.size)})"] if going.repos else []
    what += [f"pair {pair.id} in {known.file}"] if own and pair else []
    agreed(f"Delete {' and '.join(what)}?", yes)
    freed = f" {words.size(remove(known.hub, going))} are free again." if going.repos else ""
    if own and pair is not None:
        remove_pair(known.file, pair.id)
    Output().write(f"Deleted {' and '.join(what)}.{freed}\n")


def _keeper(found: "FoundModel") -> str:
    """Advice about a model that another program or the user keeps."""
    keeper = f"It is kept by {found.origin}: delete it there." if found.origin != "your folder" else "It is yours."
    return f"{keeper} ({found.about.place})"
