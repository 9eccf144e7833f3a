"""The terminal, read so that nothing it sends ends the app, and given back when the app is ended from outside."""

import asyncio
import fcntl
import os
import selectors
import signal
import struct
import sys
import termios
from codecs import getincrementaldecoder
from threading import Timer

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from specchat.tui.escapes import EscapeFilter
from specchat.tui.key_parser import KeyParser

GRACE_S = 5.0
"""Seconds the app may take to leave after a signal to end."""
_READ = 4096
_SLICE_S = 0.1


class Ended(Message):
    """The app is to leave with the return code `code`: SIGTERM or SIGHUP came, or the terminal is gone."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def cell_pixels() -> tuple[int, int] | None:
    """Width and height of a cell, where the terminal has the kernel know it."""
    if sys.__stdin__ is None:
        return None
    try:
        size = fcntl.ioctl(sys.__stdin__.fileno(), termios.TIOCGWINSZ, bytes(8))
    except (OSError, ValueError):  # it is no terminal, or closed
        return None
    rows, columns, width, height = struct.unpack("HHHH", size)
    return (width // columns, height // rows) if columns and rows and width >= columns and height >= rows else None


class Terminal(LinuxDriver):
    """Textual's driver for Linux and macOS, with replacements for bytes that are not UTF-8."""

    _gone = False

    def start_application_mode(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._end, number)
        # Between two tasks: amid one it would wait for ever for the queue of what is written, if that was being filled.
        loop.add_signal_handler(signal.SIGCONT, self._sigcont_application)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def _sigcont_application(self, *arguments: object) -> None:
        """Draw all again after a stop, unless the app has left the terminal or is leaving it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._app._exit:
            return
        if not self._must_signal_resume:  # stopped from outside: the terminal was not given back
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application(*arguments)

    def write(self, data: str) -> None:
        if not self._gone:
            super().write(data)

    def run_input_thread(self) -> None:
        parser, escapes = KeyParser(self._debug), EscapeFilter()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = selector.select(_SLICE_S)
                for event in parser.tick():  # an escape that has waited is one, however late its successor is read
                    self.process_message(event)
                if ready:
                    data = self._read()
                    if not data:
                        self._gone = True
                        self._end(signal.SIGHUP)
                        return
                    if text := escapes.feed(decode(data)):
                        for event in parser.feed(text):
                            self.process_message(event)

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, _READ)
        except OSError:
            return b""

    def _end(self, number: signal.Signals) -> None:
        """Leave in good order; a terminal that takes nothing any more must not keep the app from ending."""
        code = 128 + number
        deadline = Timer(GRACE_S, os._exit, [code])
        deadline.daemon = True
        deadline.start()
        self._app.post_message(Ended(code))
