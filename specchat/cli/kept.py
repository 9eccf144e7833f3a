"""Chats on the command line that are kept as the app keeps its own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from specchat.attachments import Attachment
from specchat.chat.saving import Saving
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.cli.asked import Asked
from specchat.cli.chat_store import LAST, find_chat
from specchat.cli.transcript import ChatInMemory
from specchat.engine.events import Changed, Event, Failed, Finished, Started, Stats, Step
from specchat.engine.options import Message, Written
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.requests import Generate

if TYPE_CHECKING:
    from specchat.cli.prepare import Prepared
    from specchat.config.catalog import Catalog


SCRATCH = "scratch"
"""In the view of a chat that was asked for in passing, and that no list shows."""


class KeptTranscript(ChatInMemory):
    """A chat in the store: each prompt is saved before it is answered, replies while they are written.

    `chat` is gone on with at the end of its shown path; `view` is what the app wants to find in it again. With `listed`
    it is a chat like others; one asked for in passing goes when the next is asked.
    """

    def __init__(
        self,
        store: Store,
        system: str,
        chat: Conversation | None = None,
        view: Mapping[str, Any] | None = None,
        listed: bool = True,
    ) -> None:
        super().__init__()
        self._store = store
        self._system = system
        self._chat = chat or Conversation(system)
        self._view = {name: value for name, value in (view or {}).items() if name != "scroll"}
        if listed:
            self._view.pop(SCRATCH, None)
        elif chat is None:
            self._view[SCRATCH] = True
        self._saving = Saving(store, lambda _: self._view)
        self._reply: Reply | None = None

    def saved(self) -> str | None:
        return self._chat.key if not self._view.get(SCRATCH) and self._store.holds(self._chat.key) else None

    def messages(self, system: str) -> tuple[Message, ...]:
        del system  # a chat keeps the one it began with
        return self._chat.messages(self._chat.last) if self._chat.last else ()

    def sent(self, prompt: str, attachments: tuple[Attachment, ...] = ()) -> str:
        if self._view.get(SCRATCH):
            self._store.drop_scratch(but=self._chat.key)
        return self._saving.asked(self._chat, self._chat.ask(prompt, attachments))

    def begun(self, request: Generate, pair: PairSpec, info: PairInfo) -> None:
        turn = self._chat.last
        assert turn is not None
        self._view["pair"] = pair.id
        self._reply = Reply(request.id, one_line(pair.name, 40), request.sampling, request.speculation, "reading")
        self._chat.answer(turn, self._reply)
        self._saving.begun(self._chat, self._reply)

    def heard(self, event: Event) -> None:
        reply = self._reply
        if reply is None:
            return
        match event:
            case Started(id=reply.id):
                reply.started(event)
            case Step(id=reply.id):
                reply.step(event)
                self._saving.written(self._chat, reply)
            case Changed(id=reply.id):
                reply.changed(event)
            case Finished(id=reply.id):
                reply.finished(event)
            case Failed():
                reply.failed(event)

    def answered(self, written: Written) -> None:
        reply, self._reply = self._reply, None
        if reply is None or reply.turn is None:
            return
        if not reply.ended:
            reply.finished(Finished.of(reply.id, "cancelled", reply.written, (), Stats()))
        if not reply.raw and len(reply.turn.replies) > 1:
            self._chat.drop(reply.turn, reply)
            self._saving.dropped(reply)
        else:
            self._saving.ended(self._chat, reply)

    def new(self) -> None:
        self._chat, self._reply = Conversation(self._system), None
        self._view.pop("settings", None)


class Continued:
    """The saved chat that `--continue` or `--chat` names, None where neither is given."""

    def __init__(self, store: Store, continued: bool, wanted: str | None) -> None:
        """Raises Problem where there is no such chat."""
        self._store = store
        self._chat: Conversation | None = None
        self._view: Mapping[str, Any] = {}
        self._gone = ""
        if continued or wanted is not None:
            if click.get_current_context().get_parameter_source("system") is ParameterSource.COMMANDLINE:
                raise click.UsageError("--system cannot change a chat that goes on. Leave one of them out.")
            self._chat, row = store.load(find_chat(store, wanted or LAST, scratch=True).key)
            self._view = row.view

    def with_pair(self, asked: Asked) -> Asked:
        """`asked` with the chat's pair where no other is asked for and it is still declared."""
        wanted = self._view.get("pair")
        if asked.pair or asked.target or not isinstance(wanted, str):
            return asked
        if any(wanted == pair.id for pair in _catalog(asked).pairs):
            return replace(asked, pair=wanted)
        self._gone = wanted
        return asked

    def transcript(self, prepared: "Prepared", listed: bool = True) -> KeptTranscript:
        """The chat that goes on, or a new one; standard error tells where its pair is gone and another one answers."""
        if self._gone:
            from specchat.config.catalog import why_gone

            gone = f"This chat's pair {one_line(self._gone, 40)} is not loaded: {why_gone(self._gone)}."
            click.echo(
                f"{gone} {one_line(prepared.pair.name, 40)} answers; --pair or --target names another.", err=True
            )
        return KeptTranscript(self._store, prepared.system, self._chat, self._view, listed)


def _catalog(asked: Asked) -> "Catalog":
    from specchat.cli.prepare import read_catalog
    from specchat.config.paths import user_paths

    return read_catalog(user_paths(), asked.models)
