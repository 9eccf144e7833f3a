"""The output of a reply, as it comes."""

from collections.abc import Callable

from specchat.engine.protocol.events import Step


class Outlet:
    """Writes a reply as it comes: the answer with `write`, the reasoning with `think`; each ends its last line."""

    def __init__(
        self,
        write: Callable[[str], None],
        think: Callable[[str], None] = lambda _: None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """`end` is called after an answer, in place of writing a line break."""
        self._write = write
        self._end = end
        self._think = think
        self._last, self._thought = "", ""
        """The last characters of both."""

    def put(self, step: Step) -> None:
        """Write the text of a step."""
        for piece in step.pieces:
            if piece.reasoning:
                self._think(piece.text)
                self._thought = piece.text[-1:] or self._thought
            else:
                self._put_answer(piece.text)

    def end(self) -> None:
        """The reply is over, or nothing more of it comes."""
        if self._last and self._end is not None:
            self._end()
        elif self._last and self._last != "\n":
            self._write("\n")
        self._end_thought()

    def _put_answer(self, text: str) -> None:
        # A model leaves empty lines between its reasoning and its answer.
        text = text.lstrip("\n") if self._thought and not self._last else text
        if text:
            if not self._last:
                self._end_thought()
            self._write(text)
            self._last = text[-1]

    def _end_thought(self) -> None:
        if self._thought and self._thought != "\n":
            self._think("\n")
            self._thought = "\n"
