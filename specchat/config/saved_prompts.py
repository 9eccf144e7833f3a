"""Saved prompts: a file each in the folder `prompts` of the configuration, its name the command that brings it."""

import re
from pathlib import Path

from specchat import private
from specchat.clean import clean
from specchat.config.errors import ConfigError
from specchat.config.paths import made_folder
from specchat.dataclass import dataclass
from specchat.reading import read_text

MOST, LARGEST = 500, 64 << 10
"""Files that are read, and bytes of one."""
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
BLANK = re.compile(r"\{[^{}\n]{1,60}\}")
"""A blank: words in braces that are to be replaced."""
_SUFFIX = ".md"


def filled(text: str, argument: str) -> str:
    """A prompt with an argument in its first blank, or after it."""
    if not argument:
        return text
    return BLANK.sub(lambda _: argument, text, count=1) if BLANK.search(text) else f"{text} {argument}"


@dataclass(frozen=True)
class SavedPrompts:
    """The prompts in `folder`; None holds none."""

    folder: Path | None = None

    def names(self) -> list[str]:
        """The names of all that there are, in order."""
        try:
            found = [path.stem for path in self.folder.iterdir() if path.suffix == _SUFFIX] if self.folder else []
        except OSError:
            return []
        return sorted(name for name in found if NAME.fullmatch(name))[:MOST]

    def read(self, name: str) -> str:
        """The text of a prompt.

        Raises:
            ConfigError: it cannot be read.
        """
        path = self._path(name)
        try:
            return clean(read_text(path, LARGEST)).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}.") from error

    def save(self, name: str, text: str) -> Path:
        """Write a new prompt.

        Raises:
            ConfigError: the name cannot be used, or is taken, or the file cannot be written.
        """
        if not NAME.fullmatch(name):
            raise ConfigError("A name has letters from a to z, digits and - alone, and begins with a letter.")
        path = self._path(name)
        if path.exists():
            raise ConfigError(f"/{name} is there already. Edit or remove {path}, or choose another name.")
        made_folder(path.parent)
        try:
            private.replace(path, text.strip() + "\n")
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error}.") from error
        return path

    def _path(self, name: str) -> Path:
        if self.folder is None:
            raise ConfigError("Prompts are not kept here.")
        return self.folder / f"{name}{_SUFFIX}"
