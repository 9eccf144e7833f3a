"""The chat of a command so far."""

from specchat.attachments import Attachment, with_attachments
from specchat.engine.events import Event
from specchat.engine.options import NOTHING_WRITTEN, Message, Written
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.requests import Generate


class ChatInMemory:
    """Keeps a chat in memory and says what the engine is to answer. A class with these methods may keep it longer."""

    def __init__(self) -> None:
        self._turns: list[tuple[str, Written]] = []

    def saved(self) -> str | None:
        """The key of the chat once all of it is saved; None where it is not."""
        return None

    def messages(self, system: str) -> tuple[Message, ...]:
        """All turns that were answered, then the last prompt, to be answered (again)."""
        turns = [Message("system", system)] if system else []
        for prompt, answer in self._turns[:-1]:
            turns += [Message("user", prompt), answer.message]
        return (*turns, *(Message("user", prompt) for prompt, _ in self._turns[-1:]))

    def sent(self, prompt: str, attachments: tuple[Attachment, ...] = ()) -> str:
        """A new prompt, to be answered next; gives a warning where it should be safe and is not."""
        self._turns.append((with_attachments(prompt, attachments), NOTHING_WRITTEN))
        return ""

    def begun(self, request: Generate, pair: PairSpec, info: PairInfo) -> None:
        """The last prompt is about to be answered by `pair`."""

    def heard(self, event: Event) -> None:
        """Something came from the engine."""

    def answered(self, written: Written) -> None:
        """The last prompt's answer, as far as it came, in place of an earlier one.

        Without any text an earlier answer stays; a prompt that has none is dropped.
        """
        prompt, before = self._turns.pop()
        if written.text or before.text:
            self._turns.append((prompt, written if written.text else before))

    def new(self) -> None:
        """Start an empty chat."""
        self._turns.clear()
