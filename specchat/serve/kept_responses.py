"""Answered chats of `/v1/responses`, kept in memory so that a further request can go on from one."""

from collections import OrderedDict

from specchat.engine.protocol.options import Message
from specchat.serve.errors import ApiError

MAX_KEPT = 256
MAX_CHARACTERS = 64 << 20
"""Characters of all kept chats together; messages that chats share count in each."""


class KeptResponses:
    """Chats by the id of their last response; the oldest ones go first."""

    def __init__(self, most: int = MAX_KEPT, characters: int = MAX_CHARACTERS) -> None:
        self._most, self._room = most, characters
        self._chats: OrderedDict[tuple[str, str], tuple[Message, ...]] = OrderedDict()
        self._characters = 0

    def keep(self, client: str, response: str, messages: tuple[Message, ...]) -> None:
        """Keep the chat that `response` ends; `client` alone can go on from it."""
        self._chats[client, response] = messages
        self._characters += _size(messages)
        while self._chats and (len(self._chats) > self._most or self._characters > self._room):
            _, dropped = self._chats.popitem(last=False)
            self._characters -= _size(dropped)

    def get(self, client: str, response: str) -> tuple[Message, ...]:
        """The chat that `response` ends.

        Raises:
            ApiError: 404, it is not kept.
        """
        found = self._chats.get((client, response))
        if found is None:
            words = (
                f"previous_response_id: {response} is not kept here; the last {self._most} are, while specchat serves."
            )
            raise ApiError(404, words, "previous_response_id", "previous_response_not_found")
        self._chats.move_to_end((client, response))
        return found


def _size(messages: tuple[Message, ...]) -> int:
    return sum(
        len(m.content) + len(m.reasoning) + sum(len(call.arguments) for call in m.tool_calls) + 100 for m in messages
    )
