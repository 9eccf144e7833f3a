"""Answered chats of `/v1/responses`, kept in memory so that a further request can go on from one, or read it."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from specchat.engine.protocol.options import Message
from specchat.serve.errors import ApiError

MAX_KEPT = 256
MAX_CHARACTERS = 64 << 20
"""Characters of all kept chats together; messages that chats share count in each."""


@dataclass(frozen=True)
class KeptResponse:
    """A response: the chat that it ends, its body, and the items of the input that it answered."""

    messages: tuple[Message, ...]
    body: dict[str, Any]
    items: list[dict[str, Any]]

    @property
    def size(self) -> int:
        """Characters, roughly."""
        of_messages = sum(
            len(m.content)
            + len(m.reasoning)
            + sum(len(call.arguments) for call in m.tool_calls)
            + 100
            + sum(len(picture.data) for picture in m.pictures)
            for m in self.messages
        )
        return of_messages + len(json.dumps((self.body, self.items)))


class KeptResponses:
    """Responses by their ids; the oldest ones go first."""

    def __init__(self, most: int = MAX_KEPT, characters: int = MAX_CHARACTERS) -> None:
        self._most, self._room = most, characters
        self._responses: OrderedDict[tuple[str, str], tuple[KeptResponse, int]] = OrderedDict()
        self._characters = 0

    def keep(self, client: str, response: KeptResponse) -> None:
        """Keep a response; `client` alone can read it, and go on from it."""
        size = response.size
        self._responses[client, response.body["id"]] = response, size
        self._characters += size
        while self._responses and (len(self._responses) > self._most or self._characters > self._room):
            _, (_, size) = self._responses.popitem(last=False)
            self._characters -= size

    def get(self, client: str, response: str, field: str = "") -> KeptResponse:
        """A response that is kept; `field` of the request names it.

        Raises:
            ApiError: 404, it is not kept.
        """
        found = self._responses.get((client, response))
        if found is None:
            named = f"{field}: " if field else ""
            words = f"{named}{response} is not kept here; the last {self._most} are, while specchat serves."
            raise ApiError(404, words, field, "previous_response_not_found" if field else "")
        self._responses.move_to_end((client, response))
        return found[0]

    def item(self, client: str, id: str, field: str) -> dict[str, Any]:
        """An item of a kept response or of its input, which `field` of a request names.

        Raises:
            ApiError: 404, it is not kept.
        """
        for (owner, _), (response, _) in reversed(self._responses.items()):
            items: list[dict[str, Any]] = [*response.body["output"], *response.items] if owner == client else []
            for item in items:
                if item["id"] == id:
                    return item
        raise ApiError(404, f"{field}: the item {id} is not kept here; send it whole.", field)

    def delete(self, client: str, response: str) -> None:
        """Drop a response; raises as `get` does."""
        self.get(client, response)
        self._characters -= self._responses.pop((client, response))[1]
