"""The text of steps as runs of reasoning and answer."""

from specchat.engine.protocol.events import Step


class Runs:
    """Joins a step's pieces. An answer after reasoning begins without the empty lines that models put there."""

    def __init__(self) -> None:
        self._thought = self._answered = False

    def of(self, step: Step) -> list[tuple[bool, str]]:
        """The step's text, and True for reasoning, in order."""
        runs: list[tuple[bool, str]] = []
        for piece in step.pieces:
            text = piece.text
            if piece.reasoning:
                self._thought = True
            else:
                text = text.lstrip("\n") if self._thought and not self._answered else text
                self._answered = self._answered or bool(text)
            if text and runs and runs[-1][0] == piece.reasoning:
                runs[-1] = (piece.reasoning, runs[-1][1] + text)
            elif text:
                runs.append((piece.reasoning, text))
        return runs
