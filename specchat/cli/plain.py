"""`specchat --plain`: a chat by lines, for screen readers and pipes. No colours, no cursor movement, no screen."""

from contextlib import ExitStack

import click

from specchat.cli.chat_store import closing, opened_store, store_or_memory
from specchat.cli.exit_codes import ExitCode
from specchat.cli.going_on import GoingOn
from specchat.cli.lines import LONGEST, QUOTES
from specchat.cli.output import Problem, reports_errors
from specchat.cli.plain_chat import PlainChat
from specchat.cli.plain_commands import run
from specchat.cli.wishes import Wishes
from specchat.engine.errors import EngineError
from specchat.service.chat_service import ChatService
from specchat.service.state import ServiceOptions

TOO_LONG = (
    f"The message was not sent: the terminal passes on {LONGEST:,} bytes of a line and drops the rest. "
    f"Break it into lines between {QUOTES} and {QUOTES}, or pipe it in: specchat ask < FILE."
)


@reports_errors
def run_plain(wishes: Wishes, continued: bool = False, chat: str | None = None) -> None:
    """Chat by lines until the input ends: a new chat, the latest (`continued`) or the one called `chat`."""
    from specchat.cli.prepare import engine_for
    from specchat.config.paths import user_paths

    with ExitStack() as stack:
        warnings: list[str] = []
        if continued or chat is not None:
            store = stack.enter_context(opened_store())
        else:
            store, warnings = store_or_memory(user_paths().chats)
            stack.enter_context(closing(store))
        going_on = GoingOn.of(store, wishes, continued, chat)
        prepared = going_on.prepare()
        engine = engine_for(prepared, "plain")
        stack.callback(engine.close)
        service = ChatService(engine, store, prepared.preferences, ServiceOptions(used=prepared.used))
        stack.callback(service.close)
        going_on.open(service)
        plain = PlainChat(service, going_on.wishes, prepared, chosen=bool(wishes.pair or wishes.target))
        for warning in warnings:
            plain.say(warning)
        converse(plain)


def converse(chat: PlainChat) -> None:
    """Load the pair and answer every message.

    Raises:
        Problem: the pair cannot be loaded; in a pipe also whatever else goes wrong.
        click.Abort: interrupted while loading, twice, or in a pipe.
    """
    chat.load()
    for entry in chat.lines.entries():
        try:
            if entry.is_cut:
                chat.say(TOO_LONG)
            elif entry.is_command:
                run(chat, entry.text)
            else:
                chat.ask(entry.text)
        except (EngineError, click.ClickException) as error:
            if not chat.lines.is_terminal:
                if isinstance(error, click.UsageError):  # it would show how the command line is written
                    raise Problem(error.message, ExitCode.USAGE) from None
                raise
            chat.say(f"Error: {error.message}")
            chat.revive()
