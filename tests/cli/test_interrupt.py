"""ctrl+c in `ask`."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from specchat.chat.store import Store
from specchat.cli import root
from specchat.cli.client import load
from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.config.catalog import Pair
from specchat.engine.protocol.events import Event
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.service.chat_service import ChatService
from specchat.service.settings import Preferences
from tests.fake import FakeEngine


def test_the_first_is_noted_and_the_second_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt.pressed
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.pressed
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


class Loading(FakeEngine):
    """An engine that never gets done with loading."""

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        del timeout
        return iter(())


def test_while_loading_nothing_is_waited_for() -> None:
    service, interrupt = ChatService(Loading(), Store(), Preferences()), Interrupt()
    interrupt.pressed = True
    with pytest.raises(click.Abort):
        load(service, Pair(PairSpec("p", "P", ModelSource(path="x"))), lambda *_: None, interrupt)


INTERRUPTED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from specchat.cli import main
main()
"""


def test_one_that_comes_while_the_command_line_is_imported_ends_it_without_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("raise RuntimeError('Error calling __set_name__') from KeyboardInterrupt()", ExitCode.INTERRUPTED),
        ("raise ValueError('Error building a validator:\\n  KeyboardInterrupt: ')", ExitCode.INTERRUPTED),
        ("raise ValueError('a bug')", ExitCode.ERROR),
    ],
)
def test_one_that_a_library_turned_into_an_error_is_still_one(
    error: str, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root.specchat, "main", lambda **_: exec(error))
    monkeypatch.setattr(root, "_unexpected", str)
    with pytest.raises(SystemExit) as ended:
        root.main()
    assert ended.value.code == code
