"""One prompt answered by the chat's pair and by another, of which one reply is kept."""

from specchat.chat.turn import Reply, Turn
from specchat.config.catalog import Pair
from specchat.service.chat_service import ChatService


class TwoReplies:
    """Two replies to the open chat's last prompt. The second begins when no reply runs, as one pair is loaded at a
    time. `look` has to be called now and then."""

    def __init__(self, service: ChatService, other: Pair) -> None:
        """The last prompt has to have a reply, which may still be written."""
        last = service.conversation.last
        assert last is not None
        turn = last.asked
        assert turn.reply is not None
        self._service, self._other = service, other
        self.chat, self._turn = service.conversation, turn
        self._first = turn.reply
        self._second: Reply | None = None
        self._before, self._settings = service.pair_view, service.settings
        self.refusal = ""
        """The reason why there is no second reply."""

    @property
    def replies(self) -> list[Reply]:
        """Replies that were begun; of one that calls tools, the reply after the results."""
        return [_end(reply) for reply in (self._first, self._second) if reply is not None]

    @property
    def names(self) -> tuple[str, str]:
        """The pairs, for people."""
        return self._first.name, self._other.name

    def look(self) -> None:
        """Begin the second reply if it can be."""
        service = self._service
        if self._second is not None or self.refusal or service.replies or service.calls:
            return
        service.load(self._other)
        self.refusal = service.regenerate(self._turn)
        if not self.refusal:
            self._second = self._turn.reply

    def keep(self, number: int) -> bool:
        """Go on with the first reply (0) and the pair of before, or with the second (1) and its pair.

        What is being written of the other one ends. False where there is no such reply.
        """
        service, second = self._service, self._second
        chosen = self._first if number == 0 else second
        if chosen is None or not any(chosen is reply for reply in self._turn.replies):
            return False
        if number == 0 and (second is not None or self.refusal):
            if second is not None:
                service.stop()
            service.give_up_loading()
            service.bind(self._before)
            service.settings = self._settings
        self.chat.show(chosen)
        service.chat.saving.looked(self.chat)
        return True


def _end(reply: Reply) -> Reply:
    turn: Turn | None = reply.turns.shown
    while turn is not None and turn.results and turn.reply is not None:
        reply, turn = turn.reply, turn.reply.turns.shown
    return reply
