"""Races of the last prompt: when one may run, and the one that does."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specchat.engine.events import Event
from specchat.tui.session_state import SessionState

if TYPE_CHECKING:
    from specchat.tui.insight.race import Race


class Racing:
    """Belongs to a session. `race` is the latest one that was not ended; its events never reach a conversation."""

    def __init__(self, session: SessionState, ids: Iterator[int]) -> None:
        self._session = session
        self._ids = ids
        self.race: Race | None = None

    @property
    def running(self) -> bool:
        return self.race is not None and self.race.running

    def take(self, event: Event) -> bool:
        """Take an event of the race; False for every other."""
        return self.race is not None and self.race.take(event)

    def start(self) -> str:
        """Answer the last prompt again, plainly and then drafted; gives the refusal if there is one."""
        from specchat.tui.insight.race import Race, rival

        session = self._session
        turn = session.conversation.last
        if turn is None or turn.reply is None:
            return "ask something first: a race answers the last prompt again"
        if session.running is not None or self.running:
            return "a reply is running: esc stops it"
        if session.replies:
            return "another chat is being answered: a race needs the engine for itself"
        if session.loaded.info is None or session.loaded.pair is None:
            return "no model is loaded: F3 chooses one"
        if session.wanted:
            return "this chat's pair is not loaded: write something or F3 loads one"
        pair, info = session.loaded.pair, session.loaded.info
        speculation = rival(session.settings.speculation, pair.strategy, pair.lengths, info)
        if speculation is None:
            return "no drafting strategy can be used here, so there is nothing to race"
        messages = session.conversation.messages(turn)
        settings = session.settings
        begins = turn.reply.prefill, turn.reply.begun
        self.race = Race(
            session.engine.send,
            self._ids,
            messages,
            turn.reply.sampling,
            settings.limits,
            speculation,
            *begins,
            settings.template,
        )
        return ""

    def end(self) -> None:
        """Forget the race, stopping it where it runs."""
        if self.race is not None:
            self.race.stop()
        self.race = None
