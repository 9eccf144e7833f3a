"""`specchat convert`: the models of a pair as GGUF files, and pickled weights as safetensors."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specchat.cli.completion import complete_pairs
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, ProgressLine, reports_errors

if TYPE_CHECKING:
    from specchat.engine.llama_cpp.export import Kind
    from specchat.engine.protocol.pair import ModelSource

TYPES = ("f32", "f16", "q8_0", "q4_0")


@click.command()
@click.argument("what", metavar="PAIR|FOLDER|FILE", shell_complete=complete_pairs)
@click.option("--to", type=click.Choice(["gguf", "safetensors"]), required=True, help="The format to write.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where to; by default this folder, for safetensors the folder of what is read.",
)
@click.option("--type", "kind", type=click.Choice(TYPES), default="f16", show_default=True, help="What a weight is.")
@with_options(PAIR_OPTIONS[:1])
@reports_errors
def convert(what: str, to: str, out: Path | None, kind: "Kind", models: Path | None) -> None:
    """Write models in another format.

    With --to gguf the models of PAIR, or the one in FOLDER, each with its tokenizer and chat template; quantised layers
    are written as what they dequantise to. Prints what to put into models.toml to load them.

    With --to safetensors the pickled weights (.bin, .pt) of FOLDER or FILE, as trained heads are often published, with
    the config.json beside them. They are read without running what is in them; where that cannot be they are refused.
    --type is for gguf.
    """
    if to == "safetensors":
        _rewritten(Path(what).expanduser(), out)
    else:
        _pair(what, out or Path(), kind, models)


def _rewritten(path: Path, out: Path | None) -> None:
    progress = ProgressLine()
    progress.show("starting ...")
    from specchat.engine.weights.unpickled import pickled_file, rewrite

    file = pickled_file(path)
    folder = file.parent if out is None else out
    progress.show(f"reading {file.name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = rewrite(file, folder)
    except OSError as error:
        raise Problem(f"{folder} cannot be written to ({error.strerror}).", ExitCode.USAGE) from None
    progress.clear()
    Output().write(f"{written}\n")


def _pair(pair: str, out: Path, kind: "Kind", models: Path | None) -> None:
    from specchat.cli.pairs import named_pair
    from specchat.config.catalog import folder_source, local_pair, read_catalog
    from specchat.config.paths import user_paths

    catalog, folder = read_catalog(user_paths(), models), Path(pair).expanduser()
    if folder.is_dir() and catalog.declared(pair) is None:
        from specchat.models.declare import free_id

        spec = replace(local_pair(folder_source(folder), None).spec, id=free_id(folder.resolve().name, catalog))
    else:
        spec = ready(named_pair(pair, models), models).spec
    progress = ProgressLine()
    progress.show("starting ...")
    lines = ["[[pair]]", f'id = "{spec.id}-gguf"', f'name = "{spec.name} gguf {kind}"', 'backend = "gguf"']
    for role, source in (("target", spec.target), ("draft", spec.draft)):
        if source is not None:
            file = out.absolute() / f"{re.sub('[^A-Za-z0-9._-]', '-', spec.id)}-{role}-{kind}.gguf"
            _write(source, file, kind, progress)
            lines.append(f"{role} = {{ path = {_quoted(str(file))} }}")
    progress.clear()
    Output().write("\n".join(lines) + "\n")


def _write(source: "ModelSource", file: Path, kind: "Kind", progress: ProgressLine) -> None:
    from specchat.engine.fetch.hub import locate
    from specchat.engine.llama_cpp.export import export
    from specchat.engine.weights.checkpoint import Checkpoint

    if source.is_gguf:
        raise Problem(f"{source.label} is a GGUF file already.", ExitCode.USAGE)
    progress.show(f"writing {file.name}")
    checkpoint = Checkpoint.open(locate(source, lambda loading: progress.show(loading.what)))
    try:
        export(checkpoint, file, kind, checkpoint.kept(source.quant))
    except OSError as error:
        raise Problem(f"{file} cannot be written ({error.strerror}).", ExitCode.USAGE) from None


def _quoted(text: str) -> str:
    """A string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
