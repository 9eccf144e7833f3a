"""Races of the last prompt: when one may run, and the one that does."""

from typing import TYPE_CHECKING

from specchat.engine.protocol.requests import Generate
from specchat.insight.ledger import Ledger
from specchat.service.chat_service import ChatService

if TYPE_CHECKING:
    from specchat.insight.race import Lane, Race


class Racing:
    """`race` is the latest one that was not ended; its events never reach a conversation."""

    def __init__(self, service: ChatService, ledger: Ledger) -> None:
        self._service, self._ledger = service, ledger
        self.race: Race | None = None

    @property
    def running(self) -> bool:
        return self.race is not None and self.race.running

    def start(self) -> str:
        """Answer the last prompt again, plainly and then drafted; gives the refusal if there is one."""
        from specchat.insight.race import Race, rival

        service = self._service
        turn = service.conversation.last
        if turn is None or turn.reply is None:
            return "ask something first: a race answers the last prompt again"
        if service.at_work or self.running:
            return "a reply is running"
        if service.replies:
            return "another chat is being answered: a race needs the engine for itself"
        if service.loaded.info is None or service.loaded.pair is None:
            return "no model is loaded"
        if service.wanted:
            return "this chat's pair is loaded once you write something"
        pair, info = service.loaded.pair, service.loaded.info
        speculation = rival(service.settings.speculation, pair.strategy, pair.lengths, info)
        if speculation is None:
            if info.server.name:
                return "this server cannot turn drafting off: name a pair that serves the model without, as plain"
            return "no drafting strategy can be used here, so there is nothing to race"
        request = Generate(
            0,
            service.conversation.messages(turn),
            turn.reply.sampling,
            service.settings.limits,
            speculation,
            turn.reply.start.prefill,
            turn.reply.start.begun,
            template=service.settings.template,
        )
        self.race = Race(service, request, self._enter if info.server.name else lambda *_: None)
        return ""

    def _enter(self, plain: "Lane", drafted: "Lane") -> None:
        """Enter a race between servers into the ledger: plain is measured there by races alone."""
        self._ledger.raced(self._service.loaded.name, plain.reply.steps, drafted.reply.steps)

    def end(self) -> None:
        """Forget the race, stopping it where it runs."""
        if self.race is not None:
            self.race.stop()
        self.race = None
