"""`specchat chats delete`, `restore`, `rename` and `tag`."""

from collections.abc import Sequence

import click

from specchat.chat.tags import changed, shown_tags
from specchat.clean import one_line
from specchat.cli.chat_store import by_title, find_chat, opened_store, saved
from specchat.cli.completion import complete_chats, complete_deleted
from specchat.cli.download import can_ask
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Output, Problem, reports_errors


@click.command()
@click.argument("chat", shell_complete=complete_chats)
@click.option("--yes", is_flag=True, help="Do not ask; in a pipe nothing is asked.")
@reports_errors
def delete(chat: str, yes: bool) -> None:
    """Delete CHAT. For a day, restore brings it back."""
    from specchat.config.paths import user_paths
    from specchat.resident.control import forget_chat
    from specchat.tune.shelf import saw

    with opened_store() as store:
        entry = find_chat(store, chat)
        title = one_line(entry.title, 80)
        if can_ask() and not yes:
            click.confirm(f'Delete "{title}"?', abort=True, err=True)
        saved(store, store.delete(entry.key))
        forget_chat(user_paths().runtime, entry.key)
        Output().write(f'Deleted "{title}". It can be restored for a day: specchat chats restore {entry.key}\n')
        if words := saw(user_paths().tuned, entry.key):
            Output().write(f"{words}\n")


@click.command()
@click.argument("chat", required=False, shell_complete=complete_deleted)
@reports_errors
def restore(chat: str | None) -> None:
    """Restore the deleted CHAT, by its key or how its title begins; without CHAT the one deleted last."""
    with opened_store() as store:
        entries = store.deleted()
        if not entries:
            raise Problem("No chat was deleted within a day.", ExitCode.USAGE)
        names = ", ".join(f'"{one_line(entry.title, 40)}"' for entry in entries[:5])
        found = [entry for entry in entries if chat in (None, entry.key)]
        entry = found[0] if found else by_title(entries, chat or "", f"Deleted last were {names}.")
        saved(store, store.restore(entry.key))
        Output().write(f'Brought back "{one_line(entry.title, 80)}".\n')


@click.command()
@click.argument("chat", shell_complete=complete_chats)
@click.argument("title", nargs=-1, required=True)
@reports_errors
def rename(chat: str, title: Sequence[str]) -> None:
    """Give CHAT another TITLE."""
    name = one_line(" ".join(title), 80)
    if not name:
        raise click.UsageError("The title is empty.")
    with opened_store() as store:
        saved(store, store.rename(find_chat(store, chat).key, name))


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("chat", shell_complete=complete_chats)
@click.argument("tags", nargs=-1, required=True)
@reports_errors
def tag(chat: str, tags: Sequence[str]) -> None:
    """Give CHAT these TAGS too, such as work/reports; one with a minus before it is taken away."""
    with opened_store() as store:
        entry = find_chat(store, chat)
        now = changed(entry.tags, " ".join(tags))
        saved(store, store.tag(entry.key, now))
        Output().write(f'"{one_line(entry.title, 80)}" has {shown_tags(now) or "no tags"}.\n')
