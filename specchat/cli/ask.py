"""`specchat ask`: one question, the answer on standard output."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specchat.attachments import Attachment, read_attachment, with_newlines
from specchat.clean import clean
from specchat.cli.asked import Asked
from specchat.cli.chat_store import opened_store, store_or_memory
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.figures import figures
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import CHAT_OPTIONS, DECODING_OPTIONS, PAIR_OPTIONS, with_options
from specchat.cli.output import Output, Problem, ProgressLine, on_terminal, told
from specchat.cli.reply import Outlet, answer, load
from specchat.cli.transcript import ChatInMemory
from specchat.engine.events import Finished
from specchat.engine.pair import NO_SYSTEM_ROLE, PairInfo
from specchat.engine.requests import Generate
from specchat.reading import TOO_LONG, read_typed

if TYPE_CHECKING:
    from specchat.cli.prepare import Prepared


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with text, seed and figures.")
@click.option(
    "--save/--no-save",
    default=None,
    help="Keep question and answer as a chat, or not at all.  [default: until the next question]",
)
@with_options(CHAT_OPTIONS)
@told
def ask(
    text: tuple[str, ...],
    files: tuple[Path, ...],
    as_json: bool,
    save: bool | None,
    continued: bool,
    chat: str | None,
    **options: Any,
) -> None:
    """Answer one question.

    What is piped in is added to TEXT, and so is each FILE, in a fence headed by its name. The answer goes to standard
    output as it is written; figures go to standard error if that is a terminal.

    A model's reasoning goes to standard error if that is a terminal; --json has it as "reasoning".

    --continue goes on with the latest chat or question. A question is kept for that until the next one, in no list of
    chats; --save makes a chat of it, --no-save and `keep_last_question = false` in config.toml keep nothing.
    """
    goes_on = continued or chat is not None
    if save is False and goes_on:
        raise click.UsageError("--no-save does not go with a chat that goes on. Leave one of them out.")
    question, attached = _question(text, files)
    asked = Asked.of(options)
    with ExitStack() as stack:
        if not (save or goes_on):
            begin = partial(_in_passing, stack) if save is None else _unkept
            _answer(question, attached, as_json, asked, begin)
            return
        from specchat.cli.kept import Continued

        kept = Continued(stack.enter_context(opened_store()), continued, chat)
        begin = partial(kept.transcript, listed=bool(save))
        _answer(question, attached, as_json, kept.with_pair(asked), begin)


def _unkept(prepared: "Prepared") -> ChatInMemory:
    del prepared
    return ChatInMemory()


def _in_passing(stack: ExitStack, prepared: "Prepared") -> ChatInMemory:
    """A chat that is kept until the next question, where the user and the disk allow that."""
    from specchat.cli.kept import KeptTranscript

    if prepared.settings.keep_last_question is False:
        return ChatInMemory()
    store, problems = store_or_memory(prepared.paths.chats)
    stack.callback(store.close)
    return ChatInMemory() if problems else KeptTranscript(store, prepared.system, listed=False)


def _answer(
    question: str,
    attached: tuple[Attachment, ...],
    as_json: bool,
    asked: Asked,
    begin: "Callable[[Prepared], ChatInMemory]",
) -> None:
    """Ask the engine; `begin` gives the chat that the question belongs to."""
    from specchat.cli.prepare import engine_for, prepare

    prepared = prepare(asked)
    pair = ready(prepared.pair, asked.models)
    transcript = begin(prepared)
    engine = engine_for(prepared, "ask")
    out, progress = Output(), ProgressLine()
    with Interrupt() as interrupt:
        try:
            engine.start()
            info = load(engine, pair.spec, progress.show, interrupt)
            progress.clear()
            warnings = [info.warning, transcript.sent(question, attached)]
            messages = transcript.messages(prepared.system)
            if messages[0].role == "system" and not info.system_role:
                warnings.append(NO_SYSTEM_ROLE)
            for warning in filter(None, warnings):
                click.echo(clean(warning), err=True)
            request = Generate(
                id=1,
                messages=messages,
                sampling=prepared.seeded_sampling(),
                limits=prepared.limits,
                speculation=prepared.speculation(),
            )
            outlet = Outlet(_drop) if as_json else _outlet(out)
            finished = answer(engine, request, interrupt, outlet, transcript, pair.spec, info)
        finally:
            progress.clear()
            engine.close()
        if as_json:
            out.write(_as_json(finished, pair.id, request, transcript.saved()) + "\n")
        _report(finished, request, info)
        if interrupt.asked:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _outlet(out: Output) -> Outlet:
    """Where the answer goes: drawn as Markdown on a terminal, as it is into a pipe."""
    if not out.is_terminal or os.environ.get("TERM") == "dumb":
        return Outlet(out.write, on_terminal)
    from specchat.cli.markdown import MarkdownWriter

    drawn = MarkdownWriter(out.draw)
    return Outlet(drawn.put, on_terminal, drawn.end)


def _drop(text: str) -> None:
    del text


def _question(text: tuple[str, ...], files: tuple[Path, ...]) -> tuple[str, tuple[Attachment, ...]]:
    """The question, and the files that go along."""
    attached = tuple(read_attachment(path) for path in files)
    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        try:
            piped = with_newlines(read_typed(sys.stdin.buffer).decode("utf-8-sig")).rstrip("\n")
        except OverflowError:
            raise Problem(TOO_LONG, ExitCode.USAGE) from None
        except UnicodeDecodeError as error:
            raise Problem(
                f"Standard input is not UTF-8 text (byte {error.start}). Convert it first, for example with iconv.",
                ExitCode.USAGE,
            ) from None
    asked = "\n\n".join(part for part in (" ".join(text), piped) if part.strip())
    if not asked and not attached:
        raise click.UsageError('Nothing was asked. Give a text, as in: specchat ask "Why is the sky blue?"')
    return asked, attached


def _as_json(finished: Finished, pair: str, request: Generate, chat: str | None) -> str:
    found = {
        "text": finished.written.answer,
        "reasoning": finished.written.thoughts.strip("\n") or None,
        "token_ids": finished.token_ids,
        "finish_reason": finished.reason,
        "pair": pair,
        "strategy": request.speculation.strategy,
        "seed": request.sampling.seed,
        "chat": chat,
        "stats": asdict(finished.stats),
    }
    return json.dumps(found)


def _report(finished: Finished, request: Generate, info: PairInfo) -> None:
    """Figures for people, and warnings that nobody should miss."""
    if finished.reason == "context":
        click.echo("The context is full: the reply ends here.", err=True)
    if short := info.undrafted(request.speculation.strategy, finished.stats.length):
        click.echo(f"{short[0].upper()}{short[1:]}.", err=True)
    ProgressLine().line(" · ".join(figures(finished.stats, request.sampling.seed)))
