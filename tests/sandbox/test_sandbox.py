"""Hostile code in each sandbox of this machine: it reads no file, reaches no network, and ends in time."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from specchat.sandbox import box, running
from specchat.sandbox.running import LONGEST, OUTPUT, SandboxError, refusal, run


def works(each: object) -> bool:
    return box._works(box.within(each, ["true"]))  # type: ignore[arg-type]


@pytest.fixture(params=box.BOXES, ids=lambda each: each.__name__.strip("_"))
def boxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not works(request.param):
        pytest.skip("not on this machine")

    def here(command: Sequence[str]) -> list[str]:
        return box.within(request.param, command)

    monkeypatch.setattr(running, "boxed", here)


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rn", "true"], check=False).returncode != 0 if shutil.which("unshare") else True,
    reason="no user namespaces",
)
def test_a_machine_with_namespaces_has_a_sandbox() -> None:
    assert box.boxed(["true"]) is not None


@pytest.mark.usefixtures("boxed")
@pytest.mark.parametrize(
    ("language", "code", "output"),
    [
        ("python", "print(sum(range(5)))", "10\n"),
        ("sh", "echo a fox; exit 0", "a fox\n"),
        ("bash", "a=(1 2); echo ${a[1]} >&2", "2\n"),
        ("Python", "open('/tmp/x', 'w').write('a'); print(open('/tmp/x').read())", "a\n"),
        ("sh", "echo $HOME $SECRET", "/tmp\n"),
    ],
)
def test_code_runs(language: str, code: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "secret")
    ran = run(language, code)
    assert (ran.output, ran.ending[:12]) == (output, "exit code 0,")


@pytest.mark.usefixtures("boxed")
def test_no_file_of_the_user_is_seen_or_written(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    tries = [
        f"cat {path}" for path in (secret, Path.home(), "/etc/passwd", "/proc/1/root/etc/passwd", "/root", "/home")
    ]
    writes = [f"echo x > {path}" for path in (secret, "/usr/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")]
    escapes = [
        "mount -o remount,rw /usr && touch /usr/x",
        "unshare -Urm sh -c 'mount -o remount,rw,bind /usr; touch /usr/x'",
    ]
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    for code in (*tries, *writes, *escapes):
        assert not run("sh", code).ending.startswith("exit code 0"), code
    assert "secret" not in run("sh", "ls -aR /tmp; env").output
    assert secret.read_text() == "a secret"
    assert not Path("/usr/x").exists()
    assert Path("/proc/sys/kernel/core_pattern").read_text() == pattern


@pytest.mark.usefixtures("boxed")
def test_no_network_is_reached_not_even_this_machines() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0specchat-test")
        local.listen()
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "OSError" in (found := run("python", code)).output or "ConnectionRefusedError" in found.output
        code = "import socket; socket.socket(socket.AF_UNIX).connect('\\0specchat-test')"
        assert "ConnectionRefusedError" in run("python", code).output


@pytest.mark.usefixtures("boxed")
@pytest.mark.parametrize(
    ("language", "code", "ending"),
    [
        ("sh", "sleep 6060", "stopped after 1 seconds"),
        ("sh", "trap '' TERM INT; while :; do :; done", "stopped after 1 seconds"),
        ("sh", "yes", f"stopped after {OUTPUT // 1000} kB of output"),
        ("python", "x = b'x' * (4 << 30)", "exit code 1,"),
        ("sh", "dd if=/dev/zero of=/tmp/x bs=1M count=200", "exit code"),
        ("sh", "setsid sleep 6161 > /dev/null 2>&1 & echo", "exit code 0,"),
    ],
)
def test_what_takes_too_much_is_stopped_with_all_it_started(language: str, code: str, ending: str) -> None:
    ran = run(language, code, seconds=1.0 if ending.endswith("1 seconds") else 60.0)
    assert ran.ending.startswith(ending)
    assert len(ran.output) <= OUTPUT
    end = time.monotonic() + 60
    while sleeping():  # bubblewrap ends a moment before the last of its processes
        assert time.monotonic() < end


def sleeping() -> bool:
    """True while a process of the tests is there."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # one that has ended since
            if process.read_bytes() in (b"sleep\x006161\x00", b"sleep\x006060\x00"):
                return True
    return False


@pytest.mark.usefixtures("boxed")
def test_processes_are_few() -> None:
    """A fork bomb would show more, and take this machine along where it is not stopped."""
    code = """
import os, time
for number in range(200):
    try:
        if not os.fork():
            time.sleep(20)
    except BlockingIOError:
        print(number)
        break
else:
    print("no bound")
"""
    assert 1 < int(run("python", code).output) < box.PROCESSES


def test_what_is_not_run_is_said() -> None:
    assert refusal("python", "print(1)\n") == ""
    assert refusal("rust", "") == "only Python and shell code is run, and this block is rust"
    assert "of no language" in refusal("", "")
    assert "over 20,000 characters" in refusal("sh", "x" * (LONGEST + 1))
    assert "do not show" in refusal("sh", "echo \x1b[8mrm -r ~")


def test_without_a_sandbox_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(box.ENVIRONMENT, "PATH", str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(SandboxError, match="install bubblewrap"):
        run("sh", f"touch {tmp_path}/x")
    assert os.listdir(tmp_path) == []
