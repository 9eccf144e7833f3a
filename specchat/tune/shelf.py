"""The shelf of what was trained or searched: a folder each, with a note on its data and figures."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from specchat import private
from specchat.dataclass import dataclass

NOTE = "tuned.json"


@dataclass(frozen=True)
class Tuned:
    """A result of a tune.

    Attributes:
        id: the name of its folder.
        kind: the command that made it, such as "draft" or "heads".
        pair: the pair that it was made for.
        created: seconds since the epoch.
        data: what it learnt from, in words.
        used: titles of the saved chats among that, by key.
        before, after: held-out figures, by name.
        key: the pair's key in models.toml, as `models.declare.setting_of` takes it.
        value: the table there; None for the path of the folder.
        replaced: the table there before; None if the pair had none.
        folder: where it lies.
    """

    id: str
    kind: str
    pair: str
    created: float
    data: str
    used: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    key: str = "draft"
    value: Mapping[str, Any] | None = None
    replaced: Mapping[str, Any] | None = None
    folder: Path = Path()

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())

    def note(self) -> None:
        """Write the note beside the files.

        Raises:
            OSError: it cannot be written.
        """
        note = asdict(self)
        del note["folder"], note["id"]
        private.replace(self.folder / NOTE, json.dumps(note, indent=1) + "\n")


def shelved(shelf: Path) -> Iterator[Tuned]:
    """The results in a folder, by name; folders whose note cannot be read are left out."""
    if not shelf.is_dir():
        return
    for folder in sorted(shelf.iterdir()):
        if folder.name.startswith("."):
            continue
        try:
            note = json.loads((folder / NOTE).read_bytes())
            made = Tuned(id=folder.name, folder=folder, **note)
        except (OSError, ValueError, TypeError):
            continue
        yield made


def saw(shelf: Path, chat: str) -> str:
    """A sentence on what was trained on a saved chat, by its key, and how to remove it; empty if nothing was."""
    names = [one.id for one in shelved(shelf) if chat in one.used]
    if not names:
        return ""
    commands = " and ".join(f'"specchat tune remove {name}"' for name in names)
    return f"{' and '.join(names)} learnt from it: {commands} deletes that too."


def free_folder(shelf: Path, name: str) -> Path:
    """A folder of the shelf that is not there yet."""
    number = 1
    while (folder := shelf / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def remove(tuned: Tuned) -> int:
    """Delete the files; returns the bytes that are free now.

    Raises:
        OSError: one cannot be deleted.
    """
    size = tuned.size
    shutil.rmtree(tuned.folder)
    return size


def install(finished: Path, folder: Path) -> None:
    """Copy finished files into `folder`, each whole or not at all.

    Raises:
        OSError: they cannot be written.
    """
    for file in finished.glob("[!.]*"):
        new = folder / f".{file.name}.new"
        try:
            shutil.copyfile(file, new)
            new.replace(folder / file.name)
        finally:
            new.unlink(missing_ok=True)


def figure(value: float) -> str:
    """A held-out figure as text: a share in percent, else a number."""
    return f"{value:.0%}" if value <= 1 else f"{value:,.0f}"
