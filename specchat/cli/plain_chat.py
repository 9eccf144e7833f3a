"""A chat by lines: its pair, its transcript, and how replies are made."""

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.cli.client import answer, load
from specchat.cli.download import ready
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.lines import Lines
from specchat.cli.outlet import Outlet
from specchat.cli.output import Output, on_terminal
from specchat.cli.wishes import Wishes
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.pair_info import PairInfo
from specchat.insight.footer import reply_words
from specchat.service.chat_service import ChatService

if TYPE_CHECKING:
    from specchat.attachments.files import Attachment
    from specchat.cli.prepare import Prepared

PATIENCE_S = 10.0
"""A load is told of no more often than this."""


class PlainChat:
    """A chat over `service`. `wishes` are the wishes of the command line, which commands change.

    `chosen` is True if the user named the pair, rather than the chat that goes on.
    """

    def __init__(self, service: ChatService, wishes: Wishes, prepared: "Prepared", *, chosen: bool = True) -> None:
        self.service = service
        self.chosen = chosen
        self.wishes = wishes
        self.prepared = prepared
        self.last: tuple[Reply, Finished] | None = None
        """The last reply that ended well."""
        self.lines = Lines()
        self._out = Output()

    @property
    def info(self) -> PairInfo | None:
        """The loaded pair."""
        return self.service.loaded.info

    def load(self) -> None:
        """Load the pair that is wanted.

        Raises:
            ConfigError: this version cannot run it.
            Problem: its models are not here and are not wanted, or the engine cannot load it.
            click.Abort: interrupted.
        """
        pair = ready(self.prepared.pair, self.wishes.models)
        self.hint(f"Loading {pair.name}.")
        said_at = time.monotonic()

        def show(what: str, fraction: float | None) -> None:
            nonlocal said_at
            if time.monotonic() - said_at > PATIENCE_S:
                said_at = time.monotonic()
                self.hint(one_line(what) + ("" if fraction is None else f", {fraction:.0%}"))

        self.service.preferences = self.prepared.preferences
        with Interrupt() as interrupt:
            info = load(self.service, pair, show, interrupt, chosen=self.chosen)
        if info.notes.warning:
            self.say(info.notes.warning)
        self.hint(f"{pair.name} is loaded, on {info.load.device}. /help lists the commands.")

    def ask(self, prompt: str) -> None:
        """Answer `prompt`, with the files that it names. ctrl+c stops the reply, whose text is kept.

        Raises:
            AttachmentError: a file cannot be attached.
            Problem: the engine could not; text that was written is kept.
            click.Abort: interrupted a second time, or in a pipe.
        """
        files = self._files(prompt) if self.lines.is_terminal and "@" in prompt else ()
        self._put_out(self.service.send(prompt, files))

    def _files(self, prompt: str) -> "tuple[Attachment, ...]":
        """The files that a typed prompt names. What a pipe brings may be anyone's, and names none."""
        from specchat.attachments.folders import about_secrets
        from specchat.attachments.mentions import Attacher, unattached
        from specchat.attachments.passages import fitted

        attacher = Attacher()
        files = fitted(prompt, attacher.attachments(prompt), self.service.room_for_files)
        if files:
            self.say(f"With {', '.join(one_line(file.name, 60) for file in files)}.")
        if words := about_secrets(attacher.secrets):
            self.say(words)
        if words := unattached(prompt):
            self.say(f"{words[0].upper()}{words[1:]}.")
        return files

    def regenerate(self) -> None:
        """Answer the last prompt again, with a new seed; raises as `ask` does, or click.UsageError without a prompt."""
        self._put_out(self.service.regenerate())

    def _put_out(self, refusal: str) -> None:
        if refusal:
            raise click.UsageError(f"{refusal[0].upper()}{refusal[1:]}.")
        if self.service.warning:
            self.say(self.service.warning)

        def write(text: str) -> None:
            self._out.write(clean(text))

        reply = self.service.last_reply
        assert reply is not None
        with Interrupt() as interrupt:
            finished = answer(self.service, interrupt, Outlet(write, on_terminal))
        self.last = (reply, finished)
        if finished.reason == "context":
            self.say("The context is full: the reply ends here. /new starts an empty chat.")
        self.hint(", ".join(reply_words(finished.stats, reply.seed)) + ".")
        if interrupt.pressed and not self.lines.is_terminal:
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)

    def change(self, **changes: Any) -> None:
        """Change wishes from the next reply on; without effect where they cannot be fulfilled.

        Raises:
            ConfigError: there is no such pair, or a file went wrong.
            click.UsageError: the wishes contradict each other.
        """
        from specchat.cli.prepare import prepare

        wishes = replace(self.wishes, **changes)
        prepared = prepare(wishes)
        same = self.prepared.pair == prepared.pair
        self.wishes, self.prepared = wishes, prepared
        if same:
            self.service.change(prepared.preferences.settings(prepared.pair))

    def say(self, text: str) -> None:
        """Lines that must not be missed, on standard error."""
        click.echo(clean(text), err=True)

    def hint(self, text: str) -> None:
        """A line for people, on standard error where that is a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            self.say(text)

    def revive(self) -> None:
        """Load the pair again where the engine died."""
        if self.info is None:
            self.load()
