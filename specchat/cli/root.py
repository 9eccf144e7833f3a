"""`specchat`: the app when no command is given, and the way every command ends."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from specchat import __version__
from specchat.clean import clean, one_line
from specchat.cli.app import run_app
from specchat.cli.chat_store import LAST
from specchat.cli.completion import complete_themes
from specchat.cli.exit_codes import MEANINGS, ExitCode
from specchat.cli.options import (
    CHAT_OPTIONS,
    DECODING_OPTIONS,
    PAIR_OPTIONS,
    Passing,
    with_options,
)
from specchat.cli.output import Problem
from specchat.cli.wishes import Wishes
from specchat.config.errors import ConfigError
from specchat.config.paths import private_folder, user_paths
from specchat.private import opener

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


COMMANDS = (
    "ask",
    "bench",
    "chats",
    "check",
    "completion",
    "config",
    "convert",
    "doctor",
    "engine",
    "models",
    "paths",
    "recommend",
    "serve",
    "serve-command",
    "tune",
)
"""Each is in the module of its name, which is imported when the command runs."""


class _Commands(Passing):
    """Ends quietly when the reader of standard output is gone, and in a sentence when the disk behind it is full.

    Be it of a result or of a help text, which click itself writes.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:  # click looks among all for the nearest
            module = name.replace("-", "_")
            self.add_command(getattr(import_module(f"specchat.cli.{module}"), module))
        return super().get_command(ctx, cmd_name)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _writing():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _writing():
            return super().invoke(ctx)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(ExitCode.OK) from None
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        raise Problem(f"The output cannot be written ({error.strerror}).", ExitCode.USAGE) from None


@click.group(
    cls=_Commands, invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
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
    try:
        os.getcwd()
    except OSError:
        raise Problem("The current folder is gone. Go to another one first.", ExitCode.USAGE) from None
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns of its own plans, among a command's lines
    with suppress(ConfigError):  # reported by the commands that need the folders
        os.environ.setdefault("NUMBA_CACHE_DIR", str(user_paths().compiled))
        os.environ.setdefault("SPECCHAT_LEARNT_FILE", str(user_paths().learnt))
        os.environ.setdefault("SPECCHAT_GPU_FILE", str(user_paths().gpu))
        os.environ.setdefault("SPECCHAT_READ_FOLDER", str(user_paths().read))
    if ctx.invoked_subcommand is not None:
        return
    if plain:
        from specchat.cli.plain import run_plain

        run_plain(Wishes.of(options), continued, chat)
    else:
        run_app(Wishes.of(options), theme, LAST if continued and chat is None else chat)


def main() -> None:
    """Run the command line and exit with one of `ExitCode`."""
    sys.exit(_run())


def _run() -> int:
    try:
        result = specchat.main(prog_name="specchat", standalone_mode=False)
    except click.ClickException as error:
        error.message = clean(error.message)  # type: ignore[misc]  # it may quote arguments or the environment
        with suppress(OSError):  # nobody reads it
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except MemoryError:
        click.echo("Error: Memory ran out. Close other programs, or choose a smaller pair.", err=True)
        return ExitCode.MEMORY
    except Exception as error:
        if _of_interrupt(error):
            return ExitCode.INTERRUPTED
        click.echo(f"Error: {_unexpected(error)}", err=True)
        return ExitCode.ERROR
    return result if isinstance(result, int) else ExitCode.OK


def _of_interrupt(error: Exception) -> bool:
    """True for what Python or pydantic make of a ctrl+c that comes while they make a class."""
    return isinstance(error.__cause__, KeyboardInterrupt) or str(error).rstrip(": ").endswith("KeyboardInterrupt")


def _unexpected(error: Exception) -> str:
    """Keep the traceback in a file and name it."""
    import traceback

    what = f"specchat met an error it did not expect ({type(error).__name__}: {one_line(str(error))})"
    try:
        log = private_folder(user_paths().state) / "crash.log"
        with open(log, "w", encoding="utf-8", opener=opener) as file:
            file.writelines(traceback.format_exception(error))
    except Exception:
        return f"{what}."
    return f"{what}; see {log}."
