"""`specchat --plain`: a chat by lines, for screen readers and pipes. No colours, no cursor movement, no screen."""

import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from specchat.clean import clean, one_line
from specchat.cli.chat_store import close, opened_store, store_or_memory
from specchat.cli.exit_codes import ExitCode
from specchat.cli.figures import figures
from specchat.cli.interrupt import Interrupt
from specchat.cli.lines import LONGEST, QUOTES, Lines
from specchat.cli.options import Asked
from specchat.cli.output import Output, Problem, told
from specchat.cli.plain_commands import obey
from specchat.cli.reply import answer, load
from specchat.cli.transcript import Transcript
from specchat.engine.api import Finished, Generate, PairInfo
from specchat.engine.errors import EngineError
from specchat.engine.port import EnginePort

if TYPE_CHECKING:
    from specchat.cli.prepare import Prepared

PATIENCE_S = 10.0
"""A load is told of no more often than this."""
TOO_LONG = (
    f"The message was not sent: the terminal passes on {LONGEST:,} bytes of a line and drops the rest. "
    f"Break it into lines between {QUOTES} and {QUOTES}, or pipe it in: specchat ask < FILE."
)


@told
def run_plain(asked: Asked, continued: bool = False, chat: str | None = None) -> None:
    """Chat by lines until the input ends: a new chat, the latest (`continued`) or the one called `chat`."""
    from specchat.cli.kept import Continued
    from specchat.cli.prepare import keeps_state, prepare
    from specchat.config.paths import user_paths
    from specchat.engine.client import EngineClient

    with ExitStack() as stack:
        warnings: list[str] = []
        if continued or chat is not None:
            store = stack.enter_context(opened_store())
        else:
            store, warnings = store_or_memory(user_paths().chats)
            stack.callback(close, store)
        kept = Continued(store, continued, chat)
        asked = kept.with_pair(asked)
        prepared = prepare(asked)
        engine = EngineClient(prepared.paths.engine_log if keeps_state(prepared.paths) else None)
        stack.callback(engine.close)
        plain = PlainChat(engine, asked, prepared, kept.transcript(prepared.system))
        for warning in warnings:
            plain.say(warning)
        plain.run()


class PlainChat:
    """A chat over an engine. `asked` are the wishes of the command line, which commands change."""

    def __init__(self, engine: EnginePort, asked: Asked, prepared: "Prepared", transcript: Transcript) -> None:
        self.asked = asked
        self.prepared = prepared
        self.transcript = transcript
        self.info: PairInfo | None = None
        self.last: tuple[Generate, Finished] | None = None
        """The last reply that ended well."""
        self._engine = engine
        self._lines = Lines()
        self._out = Output()
        self._ids = count(1)

    def run(self) -> None:
        """Load the pair and answer every message.

        Raises:
            Problem: the pair cannot be loaded; in a pipe also whatever else goes wrong.
            click.Abort: interrupted while loading, twice, or in a pipe.
        """
        self._engine.start()
        self.load()
        for entry in self._lines.entries():
            try:
                if entry.is_cut:
                    self.say(TOO_LONG)
                elif entry.is_command:
                    obey(self, entry.text)
                else:
                    if warning := self.transcript.sent(entry.text):
                        self.say(warning)
                    self.answer()
            except (EngineError, click.ClickException) as error:
                if not self._lines.is_terminal:
                    if isinstance(error, click.UsageError):  # it would show how the command line is written
                        raise Problem(error.message, ExitCode.USAGE) from None
                    raise
                self.say(f"Error: {error.message}")
                self._revive()

    def load(self) -> None:
        """Load the pair that is wanted.

        Raises:
            ConfigError: this version cannot run it.
            Problem: the engine cannot load it.
            click.Abort: interrupted.
        """
        from specchat.cli.prepare import runnable

        pair = runnable(self.prepared.pair)
        self.hint(f"Loading {pair.name}.")
        told_at = time.monotonic()

        def show(what: str, fraction: float | None) -> None:
            nonlocal told_at
            if time.monotonic() - told_at > PATIENCE_S:
                told_at = time.monotonic()
                self.hint(one_line(what) + ("" if fraction is None else f", {fraction:.0%}"))

        with Interrupt() as interrupt:
            self.info = load(self._engine, pair.spec, show, interrupt)
        self.hint(f"{pair.name} is loaded, on {self.info.device}. /help lists the commands.")

    def answer(self, *, new_seed: bool = False) -> None:
        """Answer the last prompt. ctrl+c stops the reply, whose text is kept.

        Raises:
            Problem: the engine could not; text that was written is kept.
            click.Abort: interrupted a second time, or in a pipe.
        """
        prepared = replace(self.prepared, seed=None) if new_seed else self.prepared
        request = Generate(
            id=next(self._ids),
            messages=self.transcript.messages(prepared.system),
            sampling=prepared.seeded_sampling(),
            limits=prepared.limits,
            speculation=prepared.speculation(),
        )

        def write(text: str) -> None:
            self._out.write(clean(text))

        assert self.info is not None
        with Interrupt() as interrupt:
            finished = answer(self._engine, request, interrupt, write, self.transcript, prepared.pair.spec, self.info)
        self.last = (request, finished)
        if finished.reason == "context":
            self.say("The context is full: the reply ends here. /new starts an empty chat.")
        self.hint(", ".join(figures(finished.stats, request.sampling.seed)) + ".")
        if interrupt.asked and not self._lines.is_terminal:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)

    def change(self, **wishes: Any) -> None:
        """Ask for something else from the next reply on; without effect where that cannot be.

        Raises:
            ConfigError: there is no such pair, or a file went wrong.
            click.UsageError: the wishes contradict each other.
        """
        from specchat.cli.prepare import prepare

        asked = replace(self.asked, **wishes)
        self.prepared = prepare(asked)
        self.asked = asked

    def say(self, text: str) -> None:
        """Lines that were asked for or must not be missed, on standard error."""
        click.echo(clean(text), err=True)

    def hint(self, text: str) -> None:
        """A line for people, on standard error where that is a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            self.say(text)

    def _revive(self) -> None:
        """Start the engine again where it died."""
        if not self._engine.alive:
            self._engine.start()
            self.load()
