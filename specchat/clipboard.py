"""The clipboard: a tool of this machine, read back to be sure; else the terminal's own by OSC 52, which cannot tell.

Pictures are read by tools alone.
"""

import base64
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Timer

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


@dataclass(frozen=True)
class PictureProgram:
    """A command that writes the picture of the clipboard; `where` as above, `decode` makes a file of its output."""

    where: str
    read: tuple[str, ...]
    decode: Callable[[bytes], bytes] = bytes


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

_WINDOWS_PICTURE = (
    "Add-Type -AssemblyName System.Windows.Forms,System.Drawing; $i=[Windows.Forms.Clipboard]::GetImage(); if($i){"
    "$s=New-Object IO.MemoryStream; $i.Save($s,[Drawing.Imaging.ImageFormat]::Png); "
    "[Console]::Out.Write([Convert]::ToBase64String($s.ToArray()))}"
)
PICTURE_TOOLS = (
    PictureProgram(
        "WSL_DISTRO_NAME", ("powershell.exe", "-NoProfile", "-STA", "-Command", _WINDOWS_PICTURE), b64decode
    ),
    PictureProgram("WAYLAND_DISPLAY", ("wl-paste", "--type", "image/png")),
    PictureProgram("DISPLAY", ("xclip", "-selection", "clipboard", "-t", "image/png", "-o")),
    PictureProgram("", ("pngpaste", "-")),
    PictureProgram(
        "",
        ("osascript", "-e", "the clipboard as «class PNGf»"),
        lambda data: bytes.fromhex(data.decode("ascii", "ignore").partition("PNGf")[2].strip()),
    ),
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


def picture(most: int, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The PNG file on the clipboard, empty where there is none; None where no tool can tell. Waits for tools.

    One that takes long, or writes more than `most` bytes, counts as none.
    """
    tools = () if environment.get("SSH_CONNECTION") else PICTURE_TOOLS
    usable = [tool for tool in tools if (not tool.where or environment.get(tool.where)) and shutil.which(tool.read[0])]
    for tool in usable:
        try:
            found = tool.decode(_written(tool.read, 2 * most))
        except ValueError:
            continue
        if 0 < len(found) <= most:
            return found
    return b"" if usable else None


def _written(command: tuple[str, ...], most: int) -> bytes:
    """The output of a command; nothing of one that fails, takes too long or writes more than `most` bytes."""
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as running:
            assert running.stdout is not None
            timer = Timer(_SECONDS, running.kill)
            timer.start()
            data = running.stdout.read(most + 1)
            if len(data) > most:
                running.kill()
        timer.cancel()
    except OSError:
        return b""
    return data if running.returncode == 0 and len(data) <= most else b""


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
