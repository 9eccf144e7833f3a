"""A chat by lines: its pair, its transcript, and how replies are made."""

import sys
import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from specchat.clean import clean, one_line
from specchat.cli.asked import Asked
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.figures import figures
from specchat.cli.interrupt import Interrupt
from specchat.cli.lines import Lines
from specchat.cli.output import Output, on_terminal
from specchat.cli.reply import Outlet, answer, load
from specchat.cli.transcript import ChatInMemory
from specchat.engine.events import Finished
from specchat.engine.pair import NO_SYSTEM_ROLE, PairInfo
from specchat.engine.port import EnginePort
from specchat.engine.requests import Generate

if TYPE_CHECKING:
    from specchat.cli.prepare import Prepared

PATIENCE_S = 10.0
"""A load is told of no more often than this."""


class PlainChat:
    """A chat over an engine. `asked` are the wishes of the command line, which commands change."""

    def __init__(self, engine: EnginePort, asked: Asked, prepared: "Prepared", transcript: ChatInMemory) -> None:
        self.asked = asked
        self.prepared = prepared
        self.transcript = transcript
        self.info: PairInfo | None = None
        self.last: tuple[Generate, Finished] | None = None
        """The last reply that ended well."""
        self._short: PairInfo | None = None
        """The pair of which it was said that its draft is too short."""
        self._engine = engine
        self.lines = Lines()
        self._out = Output()
        self._ids = count(1)

    def start(self) -> None:
        """Start the engine and load the pair.

        Raises:
            ConfigError, Problem, click.Abort: as `load`.
        """
        self._engine.start()
        self.load()

    def load(self) -> None:
        """Load the pair that is wanted.

        Raises:
            ConfigError: this version cannot run it.
            Problem: its models are not here and are not wanted, or the engine cannot load it.
            click.Abort: interrupted.
        """
        pair = ready(self.prepared.pair, self.asked.models)
        self.hint(f"Loading {pair.name}.")
        told_at = time.monotonic()

        def show(what: str, fraction: float | None) -> None:
            nonlocal told_at
            if time.monotonic() - told_at > PATIENCE_S:
                told_at = time.monotonic()
                self.hint(one_line(what) + ("" if fraction is None else f", {fraction:.0%}"))

        with Interrupt() as interrupt:
            self.info = load(self._engine, pair.spec, show, interrupt)
        if self.info.warning:
            self.say(self.info.warning)
        if self.prepared.system and not self.info.system_role:
            self.say(NO_SYSTEM_ROLE)
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
            outlet = Outlet(write, on_terminal)
            finished = answer(self._engine, request, interrupt, outlet, self.transcript, prepared.pair.spec, self.info)
        self.last = (request, finished)
        if finished.reason == "context":
            self.say("The context is full: the reply ends here. /new starts an empty chat.")
        short = self.info.undrafted(request.speculation.strategy, finished.stats.length)
        if short and self._short is not self.info:
            self._short = self.info
            self.say(f"{short[0].upper()}{short[1:]}.")
        self.hint(", ".join(figures(finished.stats, request.sampling.seed)) + ".")
        if interrupt.asked and not self.lines.is_terminal:
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

    def revive(self) -> None:
        """Start the engine again where it died."""
        if not self._engine.alive:
            self.start()
