"""Keys from a terminal's bytes: sequences are read whole, by the grammar of ECMA-48, before Textual interprets them.

Textual ends at some of them, and types those that it does not know: late answers, events of keys, what is split.
"""

import re
from collections.abc import Generator, Iterable
from contextlib import suppress

from textual import constants, events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._parser import ParseEOF, ParseTimeout, Peek1, Read1, TokenCallback
from textual._xterm_parser import XTermParser
from textual.message import Message

from specchat.tui.escapes import START

_WHOLE = re.compile(
    r"[^\x1b]|\x1b(?:\[(?:\[.|M[^\x00-\x1f]{3}|(?![\[M])[ -?]*[@-~])|O[0-9;]*[^\x1b]|[^\x1b\[O\]PX^_])", re.S
)
_BEGUN = re.compile(r"\x1b(?:\[(?:\[|M[^\x00-\x1f]{0,2}|[ -?]*)|O[0-9;]*|[\]PX^_][^\x00-\x1f\x7f]*\x1b?)?", re.S)
"""A sequence of which more comes: a text between OSC, DCS, SOS, PM or APC and its end too."""
_TEXT = re.compile(r"\x1b[\]PX^_].*(?:\x07|\x1b\\)", re.S)
_EXTENDED = re.compile(r"(\x1b\[\d*)(?::[\d:]*)?(?:(;\d*)(?::(\d*))?)?((?:;[\d:]*)?[u~A-S])")
"""kitty's form of a key: code, other codes of the key, modifiers, event, text."""
_RELEASED = "3"
_ANSWER = re.compile(r"\x1b\[(?:\?[\d;]*c|6;\d+;\d+t)")
_HUGE = re.compile(r"\x1b\[48;[\d;:]*\d{5}[\d;:]*t")
"""A size of the window that would take all memory."""
_KNOWN = 32
"""Characters of the longest sequence that Textual reads; keys with a text alone are longer."""
_LONGEST = 256
_LOST_S = 1.0
"""Seconds after which no more of a sequence is waited for."""


class TerminalAnswer(Message):
    """The terminal answered: its primary device attributes, `kind` "c", or 6 and height and width of a cell, "t"."""

    def __init__(self, kind: str, numbers: tuple[int, ...]) -> None:
        super().__init__()
        self.kind, self.numbers = kind, numbers


class KeyParser(XTermParser):
    """Textual's parser, which never fails and types nothing that is not a key."""

    def parse(self, token_callback: TokenCallback[Message]) -> Generator[Read1 | Peek1, str, None]:
        self._callback = token_callback
        self._begin()
        sequence = ""
        while True:
            wait = (constants.ESCAPE_DELAY if len(sequence) < 3 else _LOST_S) if sequence else None
            try:
                sequence = self._take(sequence + (yield self.read1(wait)))
                if sequence == START:
                    pasted = []
                    while (character := (yield self.read1())) != "\x1b":  # the filter leaves that of the end alone
                        pasted.append(character)
                    token_callback(events.Paste("".join(pasted).replace("\x00", "")))
                    sequence = character
            except ParseTimeout:
                self._give_up(sequence)
                sequence = ""
            except ParseEOF:
                with suppress(StopIteration):
                    self._give_up(sequence)
                return

    def _begin(self) -> None:
        """Have Textual's parser read from its beginning."""
        self._inner = super().parse(self._callback)
        next(self._inner)

    def _take(self, sequence: str) -> str:
        """Hand on what is whole; gives the beginning of a sequence, or that of a paste."""
        while sequence and sequence != START:
            if _WHOLE.fullmatch(sequence) or (len(sequence) > 2 and sequence in ANSI_SEQUENCES_KEYS):
                self._read(sequence)
                return ""
            if _BEGUN.fullmatch(sequence):
                break
            if _TEXT.fullmatch(sequence):
                return ""
            last = sequence.rfind("\x1b") or len(sequence) - 1
            self._give_up(sequence[:last])
            sequence = sequence[last:]
        return sequence[: _LONGEST - 2] + sequence[_LONGEST - 2 :][-2:]

    def _read(self, sequence: str) -> None:
        """Have a whole sequence interpreted; one that Textual does not know is passed over."""
        if _HUGE.fullmatch(sequence):
            return
        if _ANSWER.fullmatch(sequence):
            self._callback(TerminalAnswer(sequence[-1], tuple(map(int, re.findall(r"\d{1,5}", sequence)))))
            return
        try:
            if len(sequence) > _KNOWN:
                for key in self._sequence_to_key_events(sequence):
                    self._callback(key)
                return
            for character in sequence:
                awaited = self._inner.send(character)
            if awaited.timeout is not None:
                if len(sequence) == 2:
                    self._inner.throw(ParseTimeout())  # alt with a key
                else:
                    self._begin()
        except (ValueError, ArithmeticError):
            self._begin()

    def _give_up(self, sequence: str) -> None:
        """Interpret a sequence that does not go on: escape and alt with a key are keys, other beginnings nothing."""
        if 0 < len(sequence) < 3:
            for character in sequence:
                self._inner.send(character)
            self._inner.throw(ParseTimeout())

    def parse_mouse_code(self, code: str) -> Message | None:
        """Textual's, which divides by the size in pixels, 0 where the terminal does not know it and counts cells."""
        self.mouse_pixels = self.mouse_pixels and bool(self.terminal_pixel_size)  # false of no area
        return super().parse_mouse_code(code)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """Textual's, which fails at events of keys, drops alt before enter and misspells shift+enter."""
        if extended := _EXTENDED.fullmatch(sequence):
            code, modifiers, event, text = extended.groups("")
            if event == _RELEASED:
                return
            sequence = code + modifiers + text
        for key in super()._sequence_to_key_events(sequence, alt):
            name = key.key.replace("\r", "enter")
            yield events.Key("alt+enter" if alt and name == "enter" else name, key.character)
