"""The chat: turns of a prompt and its replies."""

from dataclasses import dataclass, field

from specchat.clean import one_line
from specchat.engine.api import Message
from specchat.tui.reply import Reply


@dataclass
class Turn:
    """A prompt and the replies made to it; the last one counts."""

    prompt: str
    replies: list[Reply] = field(default_factory=list)

    @property
    def reply(self) -> Reply | None:
        return self.replies[-1] if self.replies else None

    @property
    def answered(self) -> bool:
        """Whether there is any text to go on from."""
        return self.reply is not None and bool(self.reply.raw)


@dataclass
class Conversation:
    """Turns, oldest first, under an optional system prompt."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)

    @property
    def title(self) -> str:
        return one_line(self.turns[0].prompt, 60) if self.turns else "new chat"

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    def messages(self, prompt: str, before: Turn | None = None) -> tuple[Message, ...]:
        """What the engine is asked: the answered turns (up to `before`), then `prompt`."""
        messages = [Message("system", self.system)] if self.system else []
        for turn in self.turns:
            if turn is before:
                break
            if turn.answered and turn.reply is not None:
                messages += [Message("user", turn.prompt), Message("assistant", turn.reply.raw)]
        return (*messages, Message("user", prompt))

    def as_markdown(self) -> str:
        """The whole chat as a document."""
        parts = [f"# {self.title}\n"]
        for turn in self.turns:
            parts.append(f"## You\n\n{turn.prompt}\n")
            if turn.reply is not None:
                parts.append(f"## {one_line(turn.reply.name)}\n\n{turn.reply.text}\n")
        return "\n".join(parts)
