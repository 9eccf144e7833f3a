"""The chat of `specchat --plain` so far."""

from specchat.engine.api import Finished, Generate, Message


class Transcript:
    """Keeps a chat in memory and says what the engine is to answer. A class with these methods may keep it longer."""

    def __init__(self) -> None:
        self._turns: list[tuple[str, str]] = []

    def messages(self, system: str) -> tuple[Message, ...]:
        """All turns that were answered, then the last prompt, to be answered (again)."""
        turns = [Message("system", system)] if system else []
        for prompt, answer in self._turns[:-1]:
            turns += [Message("user", prompt), Message("assistant", answer)]
        return (*turns, *(Message("user", prompt) for prompt, _ in self._turns[-1:]))

    def sent(self, prompt: str) -> None:
        """A new prompt, to be answered next."""
        self._turns.append((prompt, ""))

    def answered(self, text: str, request: Generate, finished: Finished | None) -> None:
        """The last prompt's answer, in place of an earlier one; `finished` is None where the engine failed.

        Without any text an earlier answer stays; a prompt that has none is dropped.
        """
        del request, finished
        prompt, before = self._turns.pop()
        if text or before:
            self._turns.append((prompt, text or before))

    def new(self) -> None:
        """Start an empty chat."""
        self._turns.clear()
