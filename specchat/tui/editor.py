"""Text in the user's own editor, while the app stands back."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.app import App, SuspendNotSupported

from specchat.reading import read_text

_FALLBACKS = ("nano", "vim", "vi", "micro", "emacs")


class EditorError(Exception):
    """The text could not be edited; says why in a sentence."""


def editor_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """VISUAL, EDITOR or a usual editor, as words of a command. Raises `EditorError` where there is none."""
    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(environment.get(variable, ""))
        except ValueError as error:
            raise EditorError(f"${variable} cannot be read: {error}") from None
        if words:
            if shutil.which(words[0]) is None:
                raise EditorError(f"${variable} names {words[0]}, which is not there")
            return words
    for name in _FALLBACKS:
        if shutil.which(name) is not None:
            return [name]
    raise EditorError(f"there is no editor: set VISUAL or EDITOR, or install one of {', '.join(_FALLBACKS)}")


def edit_text(app: App[None], text: str, suffix: str = ".md") -> str | None:
    """`text` as the user left it; None when it was not changed. The app is suspended until the editor ends.

    Raises `EditorError` where there is no editor, it failed, or left no readable text.
    """
    command = editor_command()
    with TemporaryDirectory(prefix="specchat-") as folder:  # of mode 0700, and with it what the editor puts there
        path = Path(folder) / f"text{suffix}"
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        try:
            with app.suspend():
                code = subprocess.run([*command, str(path)], check=False).returncode
        except SuspendNotSupported:
            raise EditorError("this terminal cannot be handed to an editor") from None
        except OSError as error:
            raise EditorError(f"{command[0]} cannot be started: {error.strerror}") from None
        if code:
            raise EditorError(f"{command[0]} ended with code {code}; nothing was taken from it")
        try:
            edited = read_text(path)
        except (OSError, UnicodeDecodeError):
            raise EditorError(f"{command[0]} left no readable text; nothing was taken from it") from None
    if edited.endswith("\n") and not text.endswith("\n"):
        edited = edited[:-1]  # editors end the last line
    return None if edited == text else edited


def suffix_of(language: str) -> str:
    """The ending of files of a language, `.txt` where that is not known."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        names = get_lexer_by_name(language).filenames if language else []
    except ClassNotFound:
        return ".txt"
    return next((name[1:] for name in names if name.startswith("*.") and name[2:].isalnum()), ".txt")
