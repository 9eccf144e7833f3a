"""`specchat chats`: saved chats on the command line. It works while the app runs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from specchat.chat.tags import shown_tags
from specchat.clean import one_line
from specchat.cli.chat_store import find_chat, opened_store
from specchat.cli.chats_changes import delete, rename, restore, tag
from specchat.cli.chats_files import export, import_, sync
from specchat.cli.completion import complete_chats
from specchat.cli.output import Output, reports_errors

if TYPE_CHECKING:
    from specchat.chat.rows import ChatEntry
    from specchat.chat.search import Hit
    from specchat.chat.tree import Conversation


@click.group()
def chats() -> None:
    """List, show, search, export, import, sync, rename, tag and delete saved chats.

    CHAT is a key, a number of the list, how the title begins, or "last".
    """


@chats.command("list")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="No more than N chats.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@reports_errors
def list_(limit: int | None, as_json: bool) -> None:
    """List chats: pinned ones (marked *) first, then the latest."""
    with opened_store() as store:
        entries = store.chats()[:limit]
        Output().write(_as_json(entries) if as_json else _table(entries))
        if not entries and not as_json:
            click.echo("There are no chats yet.", err=True)


@chats.command()
@click.argument("chat", shell_complete=complete_chats)
@click.option("--json", "as_json", is_flag=True, help="Print the chat with all branches, as export --format json.")
@reports_errors
def show(chat: str, as_json: bool) -> None:
    """Print the shown path of CHAT."""
    from specchat.chat.exporting import export

    with opened_store() as store:
        key = find_chat(store, chat).key
        out = Output()
        for piece in export(store, [key], "json") if as_json else _said(store.load(key)[0]):
            out.write(piece)


@chats.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@reports_errors
def search(words: tuple[str, ...], as_json: bool) -> None:
    """Find chats whose title or messages hold all WORDS; the last may be unfinished. #work is a tag they have."""
    with opened_store() as store:
        hits = store.search(" ".join(words))
        Output().write(_as_json(hits) if as_json else _finds(hits))
        if not hits and not as_json:
            click.echo("No chat holds all of these words.", err=True)


def _as_json(found: "Sequence[ChatEntry | Hit]") -> str:
    return json.dumps([asdict(item) for item in found], indent=2) + "\n"


def _table(entries: "Sequence[ChatEntry]") -> str:
    lines = []
    for number, entry in enumerate(entries, 1):
        date = datetime.fromtimestamp(entry.updated)
        line = f"{number:>4}  {date:%Y-%m-%d %H:%M} {'*' if entry.pinned else ' '} {one_line(entry.title, 80)}"
        lines.append(f"{line}{'  ' * bool(entry.tags)}{shown_tags(entry.tags)}\n")
    return "".join(lines)


def _said(conversation: "Conversation") -> Iterator[str]:
    yield f"{one_line(conversation.title, 400)}\n"
    if conversation.system:
        yield f"\nSystem prompt:\n{_ended(conversation.system)}"
    from specchat.chat.reasoning import marked
    from specchat.chat.tool_results import outcome as outcome_of
    from specchat.chat.tool_results import short_arguments

    for turn in conversation.turns:
        if not turn.results:
            yield f"\nYou:\n{_ended(turn.content)}"
        if turn.reply is not None:
            outcome = f" ({one_line(turn.reply.outcome)})" if turn.reply.outcome else ""
            yield f"\n{one_line(turn.reply.name) or 'Assistant'}{outcome}:\n{_ended(marked(turn.reply))}"
            for call in turn.reply.tool_calls:
                words = outcome_of(turn.reply.results.get(call.id))
                yield f"[{one_line(call.name)} {short_arguments(call.arguments)}: {words}]\n"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _finds(hits: "Sequence[Hit]") -> str:
    """Each chat that was found with the places in it, in the order of the hits."""
    lines: dict[str, list[str]] = {}
    for hit in hits:
        found = lines.setdefault(hit.chat, [f"{hit.chat}  {hit.title}\n"])
        if hit.message is not None:
            found.append(f"    {'you: ' if hit.role == 'user' else ''}{hit.snippet}\n")
    return "".join(line for found in lines.values() for line in found)


for command in (export, import_, delete, restore, rename, tag, sync):
    chats.add_command(command)
