"""The commands of `specchat --plain`: lines that begin with a slash."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import click

from specchat import figures
from specchat.clean import one_line
from specchat.cli.exit_codes import ExitCode
from specchat.cli.options import Named
from specchat.cli.plain_chat import PlainChat
from specchat.config.errors import nearest
from specchat.config.saved_prompts import BLANK, SavedPrompts, filled
from specchat.engine.errors import EngineError
from specchat.engine.protocol.ranges import DRAFT_LENGTHS, SAMPLING, SEEDS, Range
from specchat.engine.strategies import STRATEGIES

OFF = "off"
"""Takes a seed away, as in the app; so does nothing at all."""


@dataclass(frozen=True)
class PlainCommand:
    argument: str
    help: str
    run: Callable[[PlainChat, str], None]


def run(chat: PlainChat, line: str) -> None:
    """Run a command, a line like "/seed 7".

    Raises:
        click.UsageError: there is no such command, or its value cannot be used.
        click.exceptions.Exit: the chat is over.
    """
    name, _, value = line.removeprefix("/").partition(" ")
    name = FORMER_NAMES.get(name, name)
    if name in COMMANDS:
        COMMANDS[name].run(chat, value.strip())
        return
    prompts = _saved_prompts()
    if name not in (names := prompts.names()):
        near = nearest(f"/{name}", [f"/{known}" for known in (*COMMANDS, *names)])
        raise click.UsageError(
            f'There is no command "/{name}".{near} /help lists them; a message that begins with a slash is written '
            "with a space before it."
        )
    _send_saved(chat, prompts.read(name), value.strip())


def _saved_prompts() -> SavedPrompts:
    from specchat.config.paths import user_paths

    return SavedPrompts(user_paths().prompts)


def _send_saved(chat: PlainChat, text: str, value: str) -> None:
    """Send a saved prompt; its blanks are asked for, but for one that `value` fills."""

    def asked(blank: re.Match[str]) -> str:
        chat.say(f"{blank[0]}:")
        return chat.lines.answer()

    prompt = BLANK.sub(asked, filled(text, value))
    chat.hint(prompt)
    chat.ask(prompt)


def _help(chat: PlainChat, value: str) -> None:
    del value
    rows = {f"/{name} {command.argument}".strip(): command.help for name, command in COMMANDS.items()}
    width = max(map(len, rows))
    lines = [f"{usage:<{width}}  {text}" for usage, text in rows.items()]
    notes = [
        "Every other line is a message. One that ends in a backslash goes on in the next line; between two lines of",
        'three quotes (""") stands a message of many lines. ctrl+c stops a reply, at the prompt it leaves, as ctrl+d.',
        "@photo.png in a message that you type sends that file along.",
    ]
    if names := _saved_prompts().names():
        notes.append(f"Your saved prompts: {', '.join(f'/{name}' for name in names)}.")
    chat.say("\n".join([*lines, *notes]))


def _new(chat: PlainChat, value: str) -> None:
    del value
    chat.service.chats.new()
    chat.last = None
    chat.hint("A new chat.")


def _strategy(chat: PlainChat, value: str) -> None:
    if value:
        strategy = Named(list(STRATEGIES))(value)
        status = chat.info.strategy(strategy) if chat.info else None
        if status and not status.available:
            raise click.UsageError(f"{strategy} cannot be used with this pair: {status.reason}.")
        chat.change(strategy=strategy, draft_length=None)
    chat.hint(_drafting(chat))


def _number(command: str, value: str, span: Range) -> float:
    """The number that a command was given.

    Raises:
        click.UsageError: it is none, or out of range.
    """
    if (number := span.read(value)) is None:
        raise click.UsageError(f"/{command} needs {span.number}, not {one_line(value, 40)}.")
    return number


def _length(chat: PlainChat, value: str) -> None:
    if value:
        chat.change(draft_length=int(_number("length", value, DRAFT_LENGTHS)))
    chat.hint(_drafting(chat))


def _seed(chat: PlainChat, value: str) -> None:
    chat.change(seed=int(_number("seed", value, SEEDS)) if value not in ("", OFF) else None)
    chat.hint(_seeding(chat))


def _temperature(chat: PlainChat, value: str) -> None:
    if value:
        chat.change(temperature=_number("temperature", value, SAMPLING["temperature"]))
    chat.hint(_sampling(chat))


def _model(chat: PlainChat, value: str) -> None:
    if not value:
        from specchat.models.library import look
        from specchat.models.offers import found_pairs

        declared = chat.prepared.catalog
        found = [pair for pair in found_pairs(look(chat.prepared.places)).values() if not declared.with_models_of(pair)]
        known = ", ".join(pair.id for pair in (*found, *declared.pairs))
        chat.say(f"{chat.prepared.pair.id} is loaded; there are {known}.")
        return
    before = chat.wishes, chat.prepared
    chat.change(pair=value, target=None, draft=None, strategy=None, draft_length=None)
    chat.chosen = True
    try:
        chat.load()
    except (EngineError, click.ClickException):  # the pair before is in use
        chat.wishes, chat.prepared = before
        chat.service.preferences = chat.prepared.preferences
        raise


def _stats(chat: PlainChat, value: str) -> None:
    del value
    lines = [_drafting(chat), _sampling(chat), _seeding(chat)]
    if chat.last is None:
        chat.say("\n".join([*lines, "There is no reply yet."]))
        return
    reply, finished = chat.last
    stats = finished.stats
    context = f" of {chat.info.context:,}" if chat.info else ""
    speed = f", {stats.tokens_per_second:,.0f} a second" if stats.tokens_per_second else ""
    times = "" if stats.speedup_vs_plain is None else f", {stats.speedup_vs_plain:.1f} times plain"
    lines += [
        f"Last reply: {figures.of(stats.completion_tokens, 'token')}{speed}{times}.",
        f"First token after {stats.ttft_ms / 1e3:.2f} seconds; {stats.reused_tokens} of {stats.prompt_tokens} prompt "
        "tokens were in the cache.",
        f"Context used: {stats.prompt_tokens + stats.completion_tokens:,}{context} tokens.",
        f"Its seed: {reply.seed}.",
    ]
    if stats.num_spec_steps:
        lines.append(
            f"Drafting: {stats.mean_acceptance_length:.1f} tokens a step, {stats.draft_acceptance_rate:.0%} of the "
            f"drafts accepted; {stats.draft_ms / 1e3:.2f} seconds to draft, {stats.verify_ms / 1e3:.2f} to verify."
        )
    chat.say("\n".join(lines))


def _regenerate(chat: PlainChat, value: str) -> None:
    if value:
        _model(chat, value)
    chat.regenerate()


def _compare(chat: PlainChat, value: str) -> None:
    name, _, prompt = value.partition(" ")
    if not name:
        raise click.UsageError("/compare needs the id of a pair.")
    if prompt.strip():
        chat.ask(prompt.strip())
    first, before = chat.service.last_reply, (chat.wishes, chat.prepared)
    if first is None:
        raise click.UsageError("There is no reply to compare with yet.")
    _model(chat, name)
    chat.regenerate()
    chat.say(f"1 is the reply of {first.name}, 2 that of {chat.prepared.pair.name}. Type 1 or 2 to keep one.")
    if chat.lines.answer() == "1":
        chat.service.conversation.show(first)
        chat.wishes, chat.prepared = before
        chat.load()


def _quit(chat: PlainChat, value: str) -> None:
    del chat, value
    raise click.exceptions.Exit(ExitCode.OK)


def _drafting(chat: PlainChat) -> str:
    speculation = chat.service.settings.speculation
    length = f", up to {speculation.draft_length} tokens a step" if speculation.draft_length else ""
    return f"Strategy {speculation.strategy}{length}."


def _sampling(chat: PlainChat) -> str:
    return f"Temperature {chat.service.settings.sampling.shown('temperature')}."


def _seeding(chat: PlainChat) -> str:
    seed = chat.service.settings.seed
    return "A new seed for each reply." if seed is None else f"Seed {seed} for all replies."


COMMANDS: dict[str, PlainCommand] = {
    "help": PlainCommand("", "Say what can be written here.", _help),
    "new": PlainCommand("", "Start an empty chat.", _new),
    "strategy": PlainCommand("NAME", f"Draft by {', '.join(STRATEGIES)}.", _strategy),
    "length": PlainCommand("N", "Draft N tokens a step.", _length),
    "seed": PlainCommand("N", "Use this seed for all replies; without N a new one for each.", _seed),
    "temperature": PlainCommand("X", "0 takes the likeliest token.", _temperature),
    "model": PlainCommand("ID", "Load another pair; without ID say which there are.", _model),
    "stats": PlainCommand("", "Say how replies are made, and the figures of the last one.", _stats),
    "again": PlainCommand("ID", "Answer the last message again, with a new seed, or by another pair.", _regenerate),
    "compare": PlainCommand(
        "ID [TEXT]", "Have another pair answer the last message, or TEXT, too; keep one.", _compare
    ),
    "quit": PlainCommand("", "Leave.", _quit),
}
FORMER_NAMES = {"regenerate": "again"}
"""Names that scripts may still have."""
