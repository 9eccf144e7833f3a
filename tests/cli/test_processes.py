"""The command line as the shell sees it: real processes, pipes, signals and terminals."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.cli.ask import WAITING
from specchat.cli.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]
SCRIPTED = [sys.executable, "-m", "tests.cli.scripted_specchat"]
PATIENCE_S = 60.0


def ask(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SCRIPTED, "ask", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def wait_until_pressed() -> None:
    """Wait until ctrl+c was noted: two that come at once are one."""
    wait_for(Path(os.environ["SPECCHAT_HOME"], "pressed").exists)


def wait_until_logged(words: str) -> None:
    log = Path(os.environ["SPECCHAT_HOME"]) / "state" / "engine.log"
    wait_for(lambda: log.exists() and words in log.read_text())


class Terminal:
    """A process whose standard streams are a terminal of 120 x 36."""

    def __init__(self, *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
            os.chdir(ROOT)
            os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="36")
            os.execv(command[0], command)
        self.output = b""
        self._seen = 0

    def until(self, wanted: bytes) -> None:
        """Read until `wanted` comes, after what was waited for before."""
        deadline = time.monotonic() + PATIENCE_S
        while (at := self.output.find(wanted, self._seen)) < 0:
            assert time.monotonic() < deadline, self.output[-2000:]
            if not self.read():
                raise AssertionError(f"it ended before {wanted!r}: {self.output[-2000:]!r}")
        self._seen = at + len(wanted)

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.read():
            assert time.monotonic() < deadline, self.output[-2000:]
        self.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        os.close(self._fd)

    def read(self) -> bool:
        """Take what is there; False at the end."""
        if not select.select([self._fd], [], [], 0.05)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.output += data
        return bool(data)


def test_an_answer_from_a_real_engine_process() -> None:
    process = ask("hello")
    assert process.communicate(timeout=PATIENCE_S) == ("Once there was a fox.\n", "")
    assert process.returncode == 0


def test_interrupting_a_reply_keeps_its_text() -> None:
    process = ask("endless")
    assert process.stdout is not None
    first = process.stdout.read(4)
    os.killpg(process.pid, signal.SIGINT)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED
    assert re.fullmatch(r"word( word)* ?\n", first + rest)
    assert errors == ""


def test_an_interrupted_reply_as_json_says_so() -> None:
    process = ask("--json", "endless")
    wait_until_logged("well under way")
    (worker,) = workers(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    answer = json.loads(process.communicate(timeout=PATIENCE_S)[0])
    assert process.returncode == ExitCode.INTERRUPTED
    assert answer["finish_reason"] == "cancelled"
    wait_for(lambda: not Path(f"/proc/{worker}").exists())


def test_interrupting_while_loading_ends_at_once(tmp_path: Path) -> None:
    (slow := tmp_path / "slow").mkdir()
    process = ask("--target", str(slow), "hello")
    wait_until_logged("loading")
    assert workers(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == ExitCode.INTERRUPTED
    wait_for(lambda: not workers(process.pid))


def test_a_second_interrupt_ends_a_reply_that_does_not_stop() -> None:
    process = ask("stuck")
    wait_until_logged("stuck")
    os.killpg(process.pid, signal.SIGINT)
    wait_until_pressed()
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, errors.strip()) == ("", "")
    assert process.returncode == ExitCode.INTERRUPTED


def test_a_closed_pipe_ends_it_quietly() -> None:
    process = ask("endless")
    assert process.stdout is not None
    assert process.stdout.read(4) == "word"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.rotated(3, 2)
@pytest.mark.parametrize("command", [["models"], ["paths"], ["models", "--json"], ["-h"], ["ask", "-h"]])
def test_a_pipe_closed_from_the_start_is_no_error(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "specchat", *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_open_standard_input_is_told() -> None:
    command, pipe = [*SCRIPTED, "ask", "hello"], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as asking:
        assert asking.stderr is not None
        assert asking.stderr.readline() == f"{WAITING}\n"
        out, errors = asking.communicate("more\n", timeout=PATIENCE_S)
    assert (asking.returncode, errors) == (0, "")
    assert out


def test_an_error_that_nobody_reads_keeps_its_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "specchat", "chats", "show", "nothing"]
    result = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=writer)
    os.close(writer)
    assert result.returncode == ExitCode.USAGE


@pytest.mark.rotated(3)
@pytest.mark.parametrize("command", ["chats list --json", "paths", "--help", "--version", "ask hello", "--plain"])
def test_a_closed_standard_output_is_no_error(command: str) -> None:
    line = f'"{sys.executable}" -m tests.cli.scripted_specchat {command} >&- <&-'
    result = subprocess.run(["sh", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.rotated(3, 1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("command", ["models", "ask hello", "--help", "ask --help", "--version"])
def test_a_full_disk_behind_standard_output_is_told(command: str) -> None:
    line = f'"{sys.executable}" -m tests.cli.scripted_specchat {command} >/dev/full </dev/null'
    result = subprocess.run(["sh", "-c", line], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert re.fullmatch(
        r"Error: (Standard|The) output cannot be written \(No space left on device\)\.\n", result.stderr
    )
    assert result.returncode == ExitCode.USAGE


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'cd {gone}; rmdir {gone}; PYTHONPATH={ROOT} "{sys.executable}" -m specchat ask hello'
    result = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert (result.returncode, result.stderr) == (
        ExitCode.USAGE,
        "Error: The current folder is gone. Go to another one first.\n",
    )


def test_an_engine_that_dies_is_told_with_what_was_written() -> None:
    process = ask("exit")
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (ExitCode.DIED, "")
    assert "exit code 7" in errors


def test_an_unexpected_error_is_kept_in_a_file_and_told_in_a_sentence() -> None:
    code = """
import sys
from specchat.cli import main
from specchat.config import catalog
def broken(*_): raise ZeroDivisionError("what\\nnow")
catalog.read_catalog = broken
sys.argv = ["specchat", "models"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == ExitCode.ERROR
    log = Path(os.environ["SPECCHAT_HOME"]) / "state" / "crash.log"
    assert (
        result.stderr == f"Error: specchat met an error it did not expect (ZeroDivisionError: what now); see {log}.\n"
    )
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_on_a_terminal_codes_are_taken_out_and_figures_shown() -> None:
    terminal = Terminal(*SCRIPTED, "ask", "--seed", "5", "codes")
    assert terminal.end() == 0
    text = terminal.output.decode()
    assert "reading" in text
    assert "Once ␛]52;c;aGk=there" in text
    assert "\x1b]" not in text
    assert re.search(r"\d+ tok/s · .* · seed 5 · .* s to first", text)


def test_in_a_pipe_the_text_is_left_as_it_is() -> None:
    out, _ = ask("codes").communicate(timeout=PATIENCE_S)
    assert out == "Once \x1b]52;c;aGk=\x07there\n"


def test_the_app_opens_and_leaves_nothing_behind() -> None:
    terminal = Terminal(*SCRIPTED)
    terminal.until(b"specchat")
    begun = set[int]()

    def some() -> bool:
        begun.update(workers(terminal.pid))
        return terminal.read() and bool(begun)

    wait_for(some)
    terminal.type(b"\x11")
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.output
    # An engine that was just beginning ends when it finds the app gone.
    wait_for(lambda: not [worker for worker in begun if Path(f"/proc/{worker}").exists()])


def test_a_byte_that_is_not_utf8_is_replaced() -> None:
    terminal = Terminal(*SCRIPTED)

    def shown() -> bool:
        terminal.type(b"caf\xe9 ")  # what comes before the first frame is lost
        return terminal.read() and "caf\ufffd".encode() in terminal.output

    wait_for(shown)
    terminal.type(b"\x11")
    assert terminal.end() == 0
    assert b"Traceback" not in terminal.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGHUP, ExitCode.HUNG_UP)])
def test_a_signal_gives_the_terminal_back(number: int, code: int) -> None:
    terminal = Terminal(*SCRIPTED)
    terminal.until(b"\x1b[?1049h")
    os.kill(terminal.pid, number)
    assert terminal.end() == code
    assert terminal.output.rfind(b"\x1b[?1049l") > terminal.output.rfind(b"\x1b[?1049h")
    assert b"Traceback" not in terminal.output


def test_a_closed_terminal_ends_the_app_and_its_engine() -> None:
    terminal = Terminal(*SCRIPTED)
    terminal.until(b"\x1b[?1049h")
    wait_for(lambda: terminal.read() and workers(terminal.pid))
    (worker,) = workers(terminal.pid)
    terminal.close()
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == ExitCode.HUNG_UP
    wait_for(lambda: not Path(f"/proc/{worker}").exists())


def test_a_dumb_terminal_is_refused() -> None:
    terminal = Terminal("/usr/bin/env", "TERM=dumb", *SCRIPTED)
    assert terminal.end() == ExitCode.NO_TERMINAL
    assert b"TERM is dumb" in terminal.output
