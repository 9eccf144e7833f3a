"""The clipboard: a tool of this machine, read back to be sure; else the terminal's own by OSC 52, which cannot tell."""

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

OSC_52_LIMIT = 74_994
"""Bytes of base64 that many terminals take at most."""

_SECONDS = 3
"""A tool gets so long; the Windows one starts PowerShell to read back."""


@dataclass(frozen=True)
class ClipboardProgram:
    """A pair of commands. It works where the environment variable `where` is set, or everywhere without one."""

    where: str
    write: tuple[str, ...]
    read: tuple[str, ...]
    encoding: str = "utf-8"
    """Characters that `write` takes."""


_POWERSHELL = "[Console]::OutputEncoding=[Text.Encoding]::UTF8;[Console]::Out.Write((Get-Clipboard -Raw))"
TOOLS = (
    ClipboardProgram(
        "WSL_DISTRO_NAME", ("clip.exe",), ("powershell.exe", "-NoProfile", "-Command", _POWERSHELL), "utf-16"
    ),
    ClipboardProgram("WAYLAND_DISPLAY", ("wl-copy",), ("wl-paste", "--no-newline")),
    ClipboardProgram("DISPLAY", ("xclip", "-selection", "clipboard"), ("xclip", "-selection", "clipboard", "-o")),
    ClipboardProgram("DISPLAY", ("xsel", "--clipboard", "--input"), ("xsel", "--clipboard", "--output")),
    ClipboardProgram("", ("pbcopy",), ("pbpaste",)),
)


def usable(
    environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which
) -> Iterator[ClipboardProgram]:
    """The programs that are there, best first; none over SSH, where they would reach the wrong machine's clipboard."""
    if not environment.get("SSH_CONNECTION"):
        for tool in TOOLS:
            if (not tool.where or environment.get(tool.where)) and which(tool.write[0]):
                yield tool


def copy(text: str, write: Callable[[str], object], environment: Mapping[str, str] = os.environ) -> str:
    """Put `text` into the clipboard and say in words what happened; waits for tools, so not on the app's thread.

    `write` sends control codes to the terminal.
    """
    unsure = ""
    for tool in usable(environment):
        if _ran(tool.write, text.encode(tool.encoding)) is None:
            continue
        back = _ran(tool.read)
        if back is not None and _same(back.decode("utf-8", "replace"), text):
            return "copied"
        if back is None:
            unsure = unsure or f"copied with {tool.write[0]}"
    if unsure:
        return unsure
    encoded = base64.b64encode(text.encode()).decode()
    write(osc_52(encoded, environment))
    if len(encoded) > OSC_52_LIMIT:
        return f"copied through the terminal; {len(encoded) / 1e3:.0f} kB is more than many take"
    return "copied through the terminal. Nothing to paste? See specchat doctor"


def osc_52(encoded: str, environment: Mapping[str, str] = os.environ) -> str:
    """The control codes that set the clipboard to base64 text, passed through tmux or screen where one runs."""
    code = f"\x1b]52;c;{encoded}\a"
    if "TMUX" in environment:
        # Once for tmux itself (set-clipboard on), once for the terminal around it (allow-passthrough on).
        return code + "\x1bPtmux;" + code.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environment.get("TERM", "").startswith("screen"):
        # screen takes strings of up to 768 bytes only.
        return "".join(f"\x1bP{code[at : at + 700]}\x1b\\" for at in range(0, len(code), 700))
    return code


def _ran(command: tuple[str, ...], text: bytes | None = None) -> bytes | None:
    """The output of a command, given `text`; None when it is not there, fails or takes too long."""
    try:
        # A tool that stays to serve the clipboard would keep a pipe open: only readers get one.
        done = subprocess.run(
            command,
            input=text if text is not None else b"",
            stdout=subprocess.PIPE if text is None else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=_SECONDS,
            env={**os.environ, "LC_CTYPE": "UTF-8"} if command[0].startswith("pb") else None,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout or b""


def _same(back: str, text: str) -> bool:
    return back.replace("\r\n", "\n").rstrip("\n") == text.replace("\r\n", "\n").rstrip("\n")
