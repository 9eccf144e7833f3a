"""The terminal's abilities, as the environment shows them."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping

from specchat.clean import one_line
from specchat.clipboard import usable
from specchat.doctor.finding import Finding, note, ok

MIN_COLUMNS, MIN_LINES = 40, 12


def window() -> os.terminal_size | None:
    """The size of the terminal that one of the standard streams is; None where none is."""
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        if stream is not None and stream.isatty():
            return os.get_terminal_size(stream.fileno())
    return None


def terminal(environ: Mapping[str, str], size: os.terminal_size | None) -> list[Finding]:
    return [_window(environ, size), _colours(environ), _characters(environ), *_between(environ), _keys()]


def _window(environ: Mapping[str, str], size: os.terminal_size | None) -> Finding:
    name = one_line(environ.get("TERM", ""), 40)
    if name == "dumb":
        return note("terminal", "TERM is dumb: the app cannot draw there; specchat --plain and specchat ask work.")
    if size is None:
        return note("terminal", "No standard stream is a terminal: the app needs one, specchat ask does not.")
    shown = f"{name or 'TERM not set'}, {size.columns} x {size.lines} cells"
    if size.columns < MIN_COLUMNS or size.lines < MIN_LINES:
        return note("terminal", f"{shown}; the app needs {MIN_COLUMNS} x {MIN_LINES}. Make the window larger.")
    return ok("terminal", shown)


def _colours(environ: Mapping[str, str]) -> Finding:
    if environ.get("NO_COLOR"):
        return note("colours", "NO_COLOR is set: the app shows none, and marks sources of tokens by style.")
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return ok("colours", "true colour")
    if os.name == "nt":
        return ok("colours", "as the Windows console has them")
    many = environ.get("TERM", "").rpartition("-")[2] in ("256color", "kitty")
    count = "256" if many else "16"
    return note("colours", f"{count} colours: set COLORTERM=truecolor if the terminal has more.")


def _characters(environ: Mapping[str, str]) -> Finding:
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    shown = one_line(locale, 40) or "no locale set"
    if os.name == "nt" or "utf8" in locale.lower().replace("-", ""):
        return ok("characters", f"Unicode ({shown})")
    return note("characters", f"{shown}: if lines and bars show as question marks, set LANG=C.UTF-8.")


def _between(environ: Mapping[str, str]) -> list[Finding]:
    """Programs between the app and the window."""
    found = []
    if environ.get("TMUX"):
        text = 'tmux: copying needs "set -g set-clipboard on", true colour "set -as terminal-features \',*:RGB\'".'
        found.append(note("multiplexer", text))
    elif environ.get("STY"):
        found.append(note("multiplexer", "GNU screen: no true colour before version 5, and copying may not pass."))
    if environ.get("SSH_CONNECTION"):
        found.append(note("remote", "SSH: what is copied goes to the terminal in front of you by OSC 52."))
    return found


def _keys() -> Finding:
    return ok("keys", "ctrl+j starts a new line anywhere, shift+enter only with the Kitty keyboard protocol")


def clipboard(environ: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> Finding:
    tools = [tool.write[0] for tool in usable(environ, which)]
    if tools:
        return ok("clipboard", f"{tools[0]}, and OSC 52")
    if environ.get("SSH_CONNECTION"):
        return ok("clipboard", "OSC 52 only, as over SSH")
    wanted = "wl-copy" if environ.get("WAYLAND_DISPLAY") else "xclip or xsel" if environ.get("DISPLAY") else ""
    hint = f" Install {wanted} to be sure." if wanted else ""
    return note("clipboard", f"OSC 52 only: the terminal may ignore it.{hint}")
