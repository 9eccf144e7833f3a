"""`specchat ask`: one question, the answer on standard output."""

import json
import os
import sys
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from typing import Any

import click

from specchat.attachments.files import Attachment, AttachmentError, read_attachment, with_newlines
from specchat.attachments.folders import about_secrets, read_folder
from specchat.attachments.passages import fitted
from specchat.chat.store import Store
from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.cli.chat_store import opened_store, store_or_memory
from specchat.cli.client import answer, load
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.going_on import GoingOn
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import CHAT_OPTIONS, DECODING_OPTIONS, PAIR_OPTIONS, with_options
from specchat.cli.outlet import Outlet
from specchat.cli.output import Output, Problem, ProgressLine, on_terminal, reports_errors
from specchat.cli.prepare import Prepared, engine_for
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Pair
from specchat.engine.errors import EngineError
from specchat.engine.grammar.source import MAX_CHARACTERS, check
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Grammar
from specchat.insight.footer import reply_words
from specchat.reading import TOO_LONG, read_text, read_typed
from specchat.service.chat_service import ChatService
from specchat.service.state import ServiceOptions

WAIT_S = 2.0
"""Seconds after which it is said that standard input is waited for."""
WAITING = "Waiting for standard input to end. If nothing is to come from there, add < /dev/null to the command."
MAX_SCHEMA_BYTES = 4 * MAX_CHARACTERS
"""A character has four bytes at most."""


@click.command()
@click.argument("text", nargs=-1)
@with_options(PAIR_OPTIONS, DECODING_OPTIONS)
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Send this text file along; may be given again.",
)
@click.option(
    "--image",
    "images",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Send this picture along to a model that reads them; may be given again.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Hold the answer to the JSON schema in this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with text, seed and figures.")
@click.option(
    "--save/--no-save",
    default=None,
    help="Keep question and answer as a chat, or not at all.  [default: until the next question]",
)
@with_options(CHAT_OPTIONS)
@reports_errors
def ask(
    text: tuple[str, ...],
    files: tuple[Path, ...],
    images: tuple[Path, ...],
    schema: Path | None,
    as_json: bool,
    save: bool | None,
    continued: bool,
    chat: str | None,
    **options: Any,
) -> None:
    """Answer one question.

    What is piped in is added to TEXT, and so is each FILE, in a fence headed by its name. The answer goes to standard
    output as it is written; figures go to standard error if that is a terminal.

    --schema holds the answer to a JSON schema: it is JSON that fits. Reasoning before it stays free.

    A model's reasoning goes to standard error if that is a terminal; --json has it as "reasoning".

    --continue goes on with the latest chat or question. A question is kept for that until the next one, in no list of
    chats; --save makes a chat of it, --no-save and `keep_last_question = false` in config.toml keep nothing.
    """
    goes_on = continued or chat is not None
    if save is False and goes_on:
        raise click.UsageError("--no-save does not go with a chat that goes on. Leave one of them out.")
    question, attached = _question(text, files)
    attached += tuple(map(_picture, images))
    grammar = None if schema is None else _schema(schema)
    wishes = Wishes.of(options)
    with ExitStack() as stack:
        going_on = GoingOn(None, wishes)
        store = stack.enter_context(opened_store()) if save or goes_on else None
        if store is not None:
            going_on = GoingOn.of(store, wishes, continued, chat)
        prepared = going_on.prepare()
        pair = ready(prepared.pair, wishes.models)
        if store is None:
            store = _passing_store(stack, prepared) if save is None else Store()
        engine = stack.enter_context(closing(engine_for(prepared, "ask")))
        used = prepared.used if store.path is not None else None  # for chats that are kept: they name models
        service = ChatService(engine, store, prepared.preferences, ServiceOptions(used=used))
        going_on.open(service)
        service.chat.scratch = not save and (service.chat.scratch or not goes_on)
        _answer(service, pair, question, attached, grammar, as_json)


def _passing_store(stack: ExitStack, prepared: Prepared) -> Store:
    """The store of a chat that is kept until the next question, in memory where the user or the disk wants that."""
    if prepared.settings.keep_last_question is False:
        return Store()
    store, _ = store_or_memory(prepared.paths.chats)
    stack.callback(store.close)
    return store


def _answer(
    service: ChatService,
    pair: Pair,
    question: str,
    attached: tuple[Attachment, ...],
    grammar: Grammar | None,
    as_json: bool,
) -> None:
    """Load the pair, and put out the answer."""
    out, progress = Output(), ProgressLine()
    with Interrupt() as interrupt:
        try:
            info = load(service, pair, progress.show, interrupt)
            progress.clear()
            attached = fitted(question, attached, service.room_for_files)
            for file in attached:
                if file.whole:
                    words = f"{file.name}: too long for the context, so passages with words of the question go along."
                    click.echo(words, err=True)
            if refusal := service.send(question, attached, grammar):
                raise Problem(f"{clean(refusal)}.", ExitCode.USAGE)
            for warning in filter(None, (info.notes.warning, service.warning)):
                click.echo(clean(warning), err=True)
            plain = grammar is not None or not out.is_terminal or os.environ.get("TERM") == "dumb"
            outlet = Outlet(lambda _: None) if as_json else _outlet(out, plain)
            finished = answer(service, interrupt, outlet)
        finally:
            progress.clear()
            service.close()
        reply = service.last_reply
        assert reply is not None
        if as_json:
            out.write(_as_json(finished, pair.id, reply, service.chat.saved) + "\n")
        if finished.reason == "context":
            click.echo("The context is full: the reply ends here.", err=True)
        progress.line(" · ".join(reply_words(finished.stats, reply.seed)))
        if interrupt.pressed:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)
        if grammar is not None:
            _look_at_json(finished, elsewhere=bool(info.server.name))


def _look_at_json(finished: Finished, *, elsewhere: bool) -> None:
    """Look at an answer that a schema holds.

    Raises:
        Problem: it was cut, or a server wrote something else than JSON.
    """
    try:
        value = json.loads(finished.written.answer)
    except (ValueError, RecursionError):
        if elsewhere and finished.reason == "stop":
            raise Problem("The server does not hold to the schema: its answer is no JSON.", ExitCode.SERVER) from None
    else:
        if finished.reason == "stop" or type(value) not in (int, float):  # digits may have been missing
            return
    advice = " Allow more with --max-tokens." * (finished.reason == "length")
    raise Problem(f"The answer was cut: it is the beginning of a JSON text, not all of it.{advice}", ExitCode.CUT)


def _outlet(out: Output, plain: bool) -> Outlet:
    """The outlet of the answer: as it is where `plain`, else drawn as Markdown."""
    if plain:
        return Outlet(out.write, on_terminal)
    from specchat.cli.markdown import MarkdownWriter

    drawn = MarkdownWriter(out.draw)
    return Outlet(drawn.put, on_terminal, drawn.end)


def _picture(path: Path) -> Attachment:
    found = read_attachment(path)
    if found.picture is None:
        raise AttachmentError(f"{found.name} is no picture. Send it along by --file.")
    return found


def _attached(path: Path) -> list[Attachment]:
    if not path.is_dir():
        return [read_attachment(path)]
    folder = read_folder(path)
    if words := about_secrets(folder.secrets):
        click.echo(words, err=True)
    return folder.texts


def _question(text: tuple[str, ...], files: tuple[Path, ...]) -> tuple[str, tuple[Attachment, ...]]:
    """The question, and the files that go along."""
    attached = tuple(attachment for path in files for attachment in _attached(path))
    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        waiting = Timer(WAIT_S, click.echo, (WAITING,), {"err": True})
        waiting.daemon = True
        waiting.start()
        try:
            piped = with_newlines(read_typed(sys.stdin.buffer).decode("utf-8-sig")).rstrip("\n")
        except OverflowError:
            raise Problem(TOO_LONG, ExitCode.USAGE) from None
        except UnicodeDecodeError as error:
            raise Problem(
                f"Standard input is not UTF-8 text (byte {error.start}). Convert it first, for example with iconv.",
                ExitCode.USAGE,
            ) from None
        finally:
            waiting.cancel()
    question = "\n\n".join(part for part in (" ".join(text), piped) if part.strip())
    if not question and not attached:
        raise click.UsageError('Nothing was asked. Give a text, as in: specchat ask "Why is the sky blue?"')
    return question, attached


def _schema(path: Path) -> Grammar:
    """The schema in a file.

    Raises:
        Problem: the file cannot be read, or is no schema that replies can be held to.
    """
    name = one_line(str(path))
    try:
        grammar = Grammar("json_schema", read_text(path.expanduser(), MAX_SCHEMA_BYTES, pipes=True))
        check(grammar)
    except UnicodeDecodeError as error:
        raise Problem(f"{name} is not UTF-8 text (byte {error.start}).", ExitCode.USAGE) from None
    except OSError as error:
        raise Problem(f"{name} cannot be read ({error.strerror}). Check the path.", ExitCode.USAGE) from None
    except EngineError as error:
        raise Problem(f"{name}: {error.message}", ExitCode.USAGE) from None
    return grammar


def _as_json(finished: Finished, pair: str, reply: Reply, chat: str | None) -> str:
    found = {
        "text": finished.written.answer,
        "reasoning": finished.written.thoughts.strip("\n") or None,
        "token_ids": finished.token_ids,
        "left_out": reply.prompt.dropped,
        "finish_reason": finished.reason,
        "pair": pair,
        "strategy": reply.speculation.strategy,
        "seed": reply.seed,
        "chat": chat,
        "stats": asdict(finished.stats),
    }
    return json.dumps(found)
