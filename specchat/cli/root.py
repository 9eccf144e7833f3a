"""`specchat`: the app when no command is given, and the way every command ends."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from specchat import __version__
from specchat.cli.app import run_app
from specchat.cli.ask import ask
from specchat.cli.bench import bench
from specchat.cli.chat_store import LAST
from specchat.cli.chats import chats
from specchat.cli.check import check
from specchat.cli.completion import complete_themes, completion
from specchat.cli.config import config
from specchat.cli.doctor import doctor
from specchat.cli.exit_codes import MEANINGS, ExitCode
from specchat.cli.models import models
from specchat.cli.options import (
    CHAT_OPTIONS,
    DECODING_OPTIONS,
    PAIR_OPTIONS,
    Asked,
    refuse_options_before_command,
    with_options,
)
from specchat.cli.paths import paths
from specchat.cli.plain import run_plain

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


class _Quiet(click.Group):
    """Ends quietly when the reader of standard output is gone, be it of a result or of a help text."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _quiet_pipe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _quiet_pipe():
            return super().invoke(ctx)


@contextmanager
def _quiet_pipe() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(ExitCode.OK) from None


@click.group(
    cls=_Quiet, invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@with_options(PAIR_OPTIONS, DECODING_OPTIONS)
@click.option(
    "--theme",
    envvar="SPECCHAT_THEME",
    show_envvar=True,
    metavar="NAME",
    shell_complete=complete_themes,
    help="The app's colours.",
)
@click.option("--plain", is_flag=True, help="Chat by lines instead: for screen readers and pipes.")
@with_options(CHAT_OPTIONS)
@click.version_option(__version__, prog_name="specchat", message="%(prog)s %(version)s")
@click.pass_context
def specchat(
    ctx: click.Context, /, theme: str | None, plain: bool, continued: bool, chat: str | None, **options: Any
) -> None:
    """Chat with a local model, made faster by speculative decoding, word for word the same.

    Without a command: the app, in this terminal.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_before_command(ctx)
    elif plain:
        run_plain(Asked.of(options), continued, chat)
    else:
        run_app(Asked.of(options), theme, LAST if continued and chat is None else chat)


for command in (ask, chats, models, check, bench, doctor, paths, config, completion):
    specchat.add_command(command)


def main() -> None:
    """Run the command line and exit with one of `ExitCode`."""
    sys.exit(_run())


def _run() -> int:
    try:
        result = specchat.main(prog_name="specchat", standalone_mode=False)
    except click.ClickException as error:
        with suppress(OSError):  # nobody reads it
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except Exception as error:
        click.echo(f"Error: {_unexpected(error)}", err=True)
        return ExitCode.ERROR
    return result if isinstance(result, int) else ExitCode.OK


def _unexpected(error: Exception) -> str:
    """Keep the traceback in a file and name it."""
    from specchat.clean import one_line
    from specchat.config.paths import private_folder, user_paths

    what = f"specchat met an error it did not expect ({type(error).__name__}: {one_line(str(error))})"
    try:
        log = private_folder(user_paths().state) / "crash.log"
        log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except Exception:
        return f"{what}."
    return f"{what}; see {log}."
