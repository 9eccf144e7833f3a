"""Deletions in a folder of chats: a file that stands for a deleted chat, without any of its words."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from specchat import private
from specchat.chat.rows import ChatRow

SUFFIX = ".deleted"
Head = list[object]
"""Date, name, pin and tags of a chat."""


def head_of(row: ChatRow) -> Head:
    return [row.updated, row.name, row.pinned, list(row.tags)]


@dataclass(frozen=True)
class Tombstone:
    """A chat when it was deleted: a digest of its name, pin and tags, and the keys of its messages."""

    digest: str
    messages: frozenset[str]

    @classmethod
    def of(cls, head: Head, messages: Iterable[str]) -> "Tombstone":
        return cls(sha256(json.dumps(head[1:]).encode()).hexdigest(), frozenset(messages))

    def covers(self, head: Head, messages: Iterable[str]) -> bool:
        """True for a chat with nothing that the deleted one had not."""
        other = Tombstone.of(head, messages)
        return self.digest == other.digest and self.messages >= other.messages

    @property
    def data(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"digest": self.digest, "messages": sorted(self.messages)}

    @classmethod
    def read(cls, data: Any) -> "Tombstone":
        """Raises LookupError, TypeError or ValueError for data that are none."""
        return cls(str(data["digest"]), frozenset(map(str, data["messages"])))


def path_of(folder: Path, key: str) -> Path:
    """The file of a deleted chat."""
    return folder / f"{key}{SUFFIX}"


def found_in(folder: Path) -> dict[str, Tombstone]:
    """The deleted chats of a folder by their keys; files that are none are left alone."""
    tombstones = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            tombstones[path.stem] = Tombstone.read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return tombstones


def put(folder: Path, key: str, tombstone: Tombstone) -> None:
    """Write the file of a deleted chat."""
    private.replace(path_of(folder, key), json.dumps(tombstone.data))
