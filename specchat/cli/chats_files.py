"""`specchat chats export`, `import` and `sync`."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from specchat.cli.chat_store import find_chat, opened_store
from specchat.cli.completion import complete_chats
from specchat.cli.output import Output, reports_errors

if TYPE_CHECKING:
    from specchat.chat.exporting import Format as ExportFormat
    from specchat.chat.importing import Format

STDOUT = Path("-")


@click.command()
@click.argument("chats", metavar="CHAT...", nargs=-1, shell_complete=complete_chats)
@click.option("--all", "everything", is_flag=True, help="All chats.")
@click.option(
    "--format", "format", type=click.Choice(("md", "html", "json")), help="[default: as FILE is called, else md]"
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default=STDOUT,
    help="Write a new file; one that exists is kept and refused.  [default: -, standard output]",
)
@reports_errors
def export(chats: tuple[str, ...], everything: bool, format: str | None, output: Path) -> None:
    """Write chats to a file or standard output.

    json holds everything, all branches and figures, and can be imported without loss. md and html are the shown path
    of one chat; html colours each token by its source.
    """
    if bool(chats) == everything:
        raise click.UsageError("Give the chats to export, or --all.")
    from specchat.chat.exporting import export as exported
    from specchat.chat.exporting import format_of
    from specchat.chat.files import write_new

    with opened_store() as store:
        keys = [entry.key for entry in store.chats()] if everything else [find_chat(store, chat).key for chat in chats]
        keys = list(dict.fromkeys(keys))
        chosen = cast("ExportFormat", format) if format else format_of(output)
        if chosen != "json" and len(keys) > 1:
            raise click.UsageError(f"A .{chosen} file holds one chat. Export them one by one, or with --format json.")
        pieces = exported(store, keys, chosen)
        if output != STDOUT:
            write_new(output, pieces)
            return
        out = Output()
        for piece in pieces:
            out.write(piece)


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format",
    type=click.Choice(("auto", "json", "md", "chatgpt")),
    default="auto",
    show_default=True,
    help="What the files are.",
)
@reports_errors
def import_(files: tuple[Path, ...], format: str) -> None:
    """Add the chats of files: exports of specchat, Markdown, and ChatGPT's conversations.json or its zip.

    Chats that are here already, with the same messages, are left alone. A file that cannot be used adds nothing.
    """
    from specchat.chat.importing import import_file

    with opened_store() as store:
        out = Output()
        for path in files:
            imported = import_file(store, path, None if format == "auto" else cast("Format", format))
            out.write(f"{path}: {imported.summary()}\n")


@click.command()
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@reports_errors
def sync(folder: Path | None) -> None:
    """Sync all chats with FOLDER, which other machines have too; [default: sync_folder in config.toml].

    Messages of both sides stay, as branches where they follow the same one. A chat that was deleted on one side is
    deleted on the other, unless it was changed there.
    """
    from specchat.chat.sync import sync as synced
    from specchat.config.paths import user_paths
    from specchat.config.settings import load_settings
    from specchat.resident.control import forget_chat

    paths = user_paths()
    named = str(folder) if folder is not None else load_settings(paths.settings_file).sync_folder
    if not named:
        raise click.UsageError("Name the folder, or set sync_folder in config.toml.")
    with opened_store() as store:
        outcome = synced(store, Path(named).expanduser(), paths.synced)
        for key in outcome.deleted:
            forget_chat(paths.runtime, key)
        Output().write(f"{outcome.summary()}\n")
