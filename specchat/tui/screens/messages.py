"""All messages of the chat, to go to one."""

from collections.abc import Sequence

from textual.content import Content

from specchat.chat.reasoning import Reasoning
from specchat.chat.turn import Turn
from specchat.clean import one_line
from specchat.tui.composing.fuzzy import ranked
from specchat.tui.screens.filter import FilterDialog
from specchat.tui.text.chat_rows import Said

_SHOWN = 200
"""Messages listed at most; typing finds the others."""


class MessagesScreen(FilterDialog[Said]):
    DIALOG_TITLE = "messages"
    DIALOG_HINT = "type to filter · enter goes there · esc closes"
    NEWEST_LAST = True

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__()
        self._messages = [
            (said, _first_line(said))
            for turn in turns
            for said in (Said(turn, "you"), Said(turn, "model"))
            if (turn.reply is not None if said.by == "model" else not turn.results)
        ]

    def find(self, query: str) -> list[tuple[Said, Content]]:
        return [(said, _row(said, line)) for said, line in best(query, self._messages)]


def best(query: str, messages: Sequence[tuple[Said, str]]) -> list[tuple[Said, str]]:
    """The messages that match best, best first; the latest ones in their order where the query is empty."""
    if not query.strip():
        return list(messages[-_SHOWN:])
    return [message for message, _ in ranked(query.strip(), reversed(messages), lambda message: message[1], _SHOWN)]


def _first_line(said: Said) -> str:
    text, reply = said.text, said.turn.reply
    if said.by == "model" and reply is not None:
        text = Reasoning(reply).answer or text
        text = text or f"calls {', '.join(call.name for call in reply.tool_calls)}" * bool(reply.tool_calls)
    text = text[:4000]
    return one_line(next((line for line in text.splitlines() if line.strip()), "(empty)"), 100)


def _row(said: Said, line: str) -> Content:
    who = "you  " if said.by == "you" else "reply"
    return Content.styled(who, "$accent" if said.by == "you" else "$quiet") + f"  {line}"
