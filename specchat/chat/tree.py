"""A chat as a tree: prompts, the replies made to each, and the turns after each reply."""

import time
from collections.abc import Iterator
from dataclasses import field

from specchat.attachments.files import Attachment
from specchat.chat.fork import Fork, new_key
from specchat.chat.tool_results import NOT_MADE, ToolResult, unanswered
from specchat.chat.turn import Reply, Turn
from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Message, ToolCall

UNTITLED = "new chat"


@dataclass(eq=False)
class Conversation:
    """A tree of turns under an optional system prompt, of which one path is shown."""

    system: str = ""
    key: str = field(default_factory=new_key)
    name: str = ""
    """Given by the user; empty where it was not."""
    made_title: str = ""
    """Made from the first exchange that is no greeting."""
    created: float = field(default_factory=time.time)
    first: Fork[Turn] = field(default_factory=Fork)
    _path: list[Turn] | None = field(default=None, repr=False)

    @property
    def turns(self) -> list[Turn]:
        """The turns shown, oldest first."""
        if self._path is None:
            self._path = []
            turn = self.first.shown
            while turn is not None:
                self._path.append(turn)
                turn = turn.reply.turns.shown if turn.reply else None
        return self._path

    @property
    def title(self) -> str:
        """One line that is safe to show."""
        first = self.turns[0].prompt if self.turns else UNTITLED
        return one_line(self.name or self.made_title or first, 80)

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    @property
    def _end(self) -> Reply | None:
        """The reply that the next prompt follows."""
        return (self.last.reply or self.last.parent) if self.last else None

    # Growing

    def ask(self, prompt: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        """A new prompt at the end of the path; in the place of the last one where nothing answered that.

        The same prompt once more is that one.
        """
        last = self.last
        if last is not None and not last.replies and (last.prompt, last.attachments) == (prompt, attachments):
            return last
        return self.add(Turn(prompt, attachments, self._end))

    def edit(self, turn: Turn, prompt: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        """Another prompt in the place of `turn`, which stays as a branch."""
        return self.add(Turn(prompt, attachments, turn.parent))

    def answer(self, turn: Turn, reply: Reply) -> None:
        """Another reply to `turn`, shown from now on."""
        reply.turn = turn
        turn.replies.add(reply)
        self._path = None

    def drop(self, turn: Turn, reply: Reply) -> None:
        """Take out a reply that came to nothing; an earlier one shows again."""
        turn.replies.drop(reply)
        self._path = None

    def add(self, turn: Turn) -> Turn:
        """A turn made elsewhere, in the place its parent says; shown from now on."""
        self.siblings(turn).add(turn)
        self._path = None
        return turn

    # Branches

    def siblings(self, turn: Turn) -> Fork[Turn]:
        """The prompts at the place of `turn`, itself among them."""
        return turn.parent.turns if turn.parent is not None else self.first

    def show(self, shown: Turn | Reply) -> None:
        """Put a prompt or a reply on the path, with all that leads to it and what is shown below it."""
        at: Turn | None = shown if isinstance(shown, Turn) else shown.turn
        if isinstance(shown, Reply) and at is not None:
            at.replies.show(shown)
        while at is not None:
            self.siblings(at).show(at)
            above = at.parent
            at = above.turn if above else None
            if at is not None and above is not None:
                at.replies.show(above)
        self._path = None

    def find(self, key: str) -> Turn | Reply | None:
        """The prompt or reply `key`, on any branch."""
        for turn in self.every_turn():
            if turn.key == key:
                return turn
            for reply in turn.replies:
                if reply.key == key:
                    return reply
        return None

    def keys(self) -> set[str]:
        """The keys of all prompts and replies."""
        turns = list(self.every_turn())
        return {turn.key for turn in turns} | {reply.key for turn in turns for reply in turn.replies}

    def every_turn(self) -> Iterator[Turn]:
        """All turns of all branches, parents before children."""
        waiting = [list(self.first)]
        while waiting:
            level = waiting.pop()
            for turn in level:
                yield turn
                waiting += [list(reply.turns) for reply in turn.replies if len(reply.turns)]

    # Messages for the engine

    def messages(self, turn: Turn | None = None, prompt: str = "") -> tuple[Message, ...]:
        """The messages for the engine: `turn` after the answered turns above it, or `prompt` after the path."""
        messages = [*reversed(turn.messages)] if turn is not None else [Message("user", prompt)]
        above = turn.parent if turn is not None else self._end
        results = turn.results if turn is not None else ()
        while above is not None and above.turn is not None:
            if above.raw or above.tool_calls:
                messages += [_not_made(call) for call in reversed(unanswered(above.tool_calls, results))]
                messages.append(above.written.message)
            if above.raw or above.tool_calls or above.turn.results:
                messages += reversed(above.turn.messages)
            results, above = above.turn.results, above.turn.parent
        if self.system:
            messages.append(Message("system", self.system))
        return tuple(reversed(messages))


def _not_made(call: ToolCall) -> Message:
    """Chat templates want an answer to each call."""
    return ToolResult(call.id, call.name, NOT_MADE, failed=True).message
