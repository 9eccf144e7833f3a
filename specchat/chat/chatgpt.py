"""Chats from ChatGPT's data export: `conversations.json`, or the zip that holds it.

A conversation is a `mapping` of nodes that know their parent and children; `current_node` is the end of the shown path.
Messages that are hidden, empty, of the system or of tools are left out, and what hangs on them moves up.
"""

import hashlib
import json
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from io import BytesIO
from typing import Any, Literal

from specchat.chat.chatgpt_text import message_text
from specchat.chat.files import MAX_BYTES, ChatFileError
from specchat.chat.rows import Answered, ChatRow, MessageRow, WholeChat
from specchat.chat.sql import LATEST
from specchat.clean import one_line

_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError),
    *(RuntimeError, NotImplementedError),  # encrypted, or packed in a way that Python does not know
)
_PARTS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_MOST = 1 << 28
"""Characters of a chat."""

Role = Literal["user", "assistant"]


@dataclass
class Read:
    """The chats of an export, and how much of what was left out."""

    chats: list[WholeChat] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    """Why the first conversation that cannot be used is left out."""

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on what was left out."""
        counts = ", ".join(f"{what} ({count})" for what, count in self.left_out.items())
        return (f"left out: {counts}",) if counts else ()


@dataclass
class _Node:
    """A message that is kept. `parent` and `children` are kept ones as well."""

    id: str
    role: Role
    text: str
    created: float
    model: str
    parent: "_Node | None" = None
    children: "list[_Node]" = field(default_factory=list)

    @property
    def continues(self) -> bool:
        """True if it goes on with what its parent says, as replies around the use of a tool do."""
        return self.parent is not None and self.parent.role == self.role


def is_zip(data: bytes) -> bool:
    return data.startswith(b"PK\x03\x04")


def unzip(data: bytes, name: str) -> Iterator[bytes]:
    """The conversations' files in the zip of an export.

    Raises:
        ChatFileError: it holds none, is damaged or encrypted, or they unpack to over MAX_BYTES.
    """
    room = MAX_BYTES
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            parts = [info for info in archive.infolist() if _PARTS.fullmatch(info.filename)]
            if not parts:
                raise ChatFileError(f"{name} holds no conversations.json: it is no export of ChatGPT.")
            for info in parts:
                with archive.open(info) as file:
                    unpacked = file.read(room + 1)  # not what the header says, which may be wrong
                room -= len(unpacked)
                if room < 0:
                    raise ChatFileError(f"{name} unpacks to over {MAX_BYTES >> 30} GiB.")
                yield unpacked
    except _DAMAGED as error:
        raise ChatFileError(f"{name} cannot be unpacked ({one_line(str(error))}).") from None


def from_chatgpt(data: object, name: str) -> Read:
    """The chats of a conversations.json's data. The same conversation gives the same keys; `name` is the file's."""
    read = Read()
    for number, conversation in enumerate(data if isinstance(data, list) else [data]):
        left_out = Counter[str]()
        try:
            chat = _Tree(conversation, f"{name}: [{number}]", left_out).chat()
        except ChatFileError as error:
            read.problem = read.problem or str(error)
            read.left_out["unusable chats"] += 1
            continue
        read.left_out += left_out
        if chat.messages:
            read.chats.append(chat)
        else:
            read.left_out["empty chats"] += 1
    return read


class _Tree:
    """One conversation on its way to rows."""

    def __init__(self, conversation: object, place: str, left_out: Counter[str]) -> None:
        """Raises ChatFileError where it is no conversation, or something in it has another form."""
        if not isinstance(conversation, dict) or not isinstance(conversation.get("mapping"), dict):
            raise ChatFileError(f"{place}: this is no conversation of ChatGPT: it has no mapping of messages.")
        self._data: Mapping[str, Any] = conversation
        self._nodes: dict[str, Mapping[str, Any]] = conversation["mapping"]
        self._place = place
        self._left_out = left_out
        for key, node in self._nodes.items():
            if not isinstance(node, dict):
                raise ChatFileError(f"{place}.mapping.{one_line(key, 60)}: this is no message.")
        id = str(conversation.get("conversation_id") or conversation.get("id") or sorted(self._nodes))
        self._hash = hashlib.sha256(_bytes(f"{id}\0"))
        self._created = _time(conversation.get("create_time"))

    def chat(self) -> WholeChat:
        rows, leaf = self._rows()
        title = self._data.get("title")
        updated = max([_time(self._data.get("update_time")), self._created, *(row.created for row in rows)])
        row = ChatRow(
            key=self._key(""),
            title=one_line(title, 400) if isinstance(title, str) else "",
            created=self._created or (rows[0].created if rows else 0.0),
            updated=updated,
            view={"leaf": leaf},
        )
        return WholeChat(row, tuple(rows))

    def _rows(self) -> tuple[list[MessageRow], str]:
        """The rows, parents before children, and the key of the last one on the path that is shown.

        What several messages of one side say in a row becomes one, as a chat has prompts and replies in turn.
        """
        rows: list[MessageRow] = []
        nodes = list(self._kept())
        current = self._current({node.id for node in nodes})
        begun: set[str] = set()
        size = 0
        for node in nodes:
            if node.children and all(child.continues for child in node.children) and node.id != current:
                continue
            run = [node]
            while run[-1].continues and run[-1].parent is not None:
                run.append(run[-1].parent)
            first = run[-1]
            text = "\n\n".join(part.text for part in reversed(run))
            size += len(text)
            if size > _MOST:
                raise ChatFileError(f"{self._place}: its branches repeat more text than can be kept.")
            parent = self._key(first.parent.id) if first.parent else None
            if parent is None and first.role == "assistant":
                parent = self._key(f"{first.id} prompt")
                if parent not in begun:
                    begun.add(parent)
                    rows.append(MessageRow(parent, None, "user", "", first.created, "sent"))
            key, created = self._key(node.id), first.created or self._created
            if node.role == "user":
                rows.append(MessageRow(key, parent, "user", text, created, "sent"))
            else:
                meta = _answered(node.model or "ChatGPT")
                rows.append(MessageRow(key, parent, "assistant", text, created, "finished", meta))
        return rows, self._key(current) if current else ""

    def _kept(self) -> Iterator[_Node]:
        """The messages to keep, parents before children and siblings in their order, linked."""
        children = self._children()
        waiting: list[tuple[str, _Node | None]] = [(key, None) for key in reversed(children.pop(None, []))]
        kept = []
        while waiting:
            key, above = waiting.pop()
            node = self._node(key)
            if node is not None:
                node.parent = above
                if above is not None:
                    above.children.append(node)
                kept.append(node)
            waiting += [(child, node or above) for child in reversed(children.pop(key, []))]
        lost = sum(map(len, children.values()))
        if lost:
            self._left_out["messages that hang on nothing"] += lost
        return iter(kept)

    def _children(self) -> dict[str | None, list[str]]:
        """Ids by that of the parent, in the order that the parent gives; None where there is no parent."""
        children: dict[str | None, list[str]] = {}
        for key, node in self._nodes.items():
            parent = node.get("parent")
            known = isinstance(parent, str) and parent in self._nodes
            children.setdefault(parent if known else None, []).append(key)
        for above, below in children.items():
            listed = self._nodes[above].get("children") if above is not None else None
            if isinstance(listed, list):
                places = {child: place for place, child in enumerate(listed) if isinstance(child, str)}
                children[above] = sorted(below, key=partial(_place, places))
        return children

    def _current(self, kept: set[str]) -> str:
        """The kept message at or above `current_node`; empty where there is none."""
        at, seen = self._data.get("current_node"), set[str]()
        while isinstance(at, str) and at in self._nodes and at not in seen:
            if at in kept:
                return at
            seen.add(at)
            at = self._nodes[at].get("parent")
        return ""

    def _node(self, key: str) -> _Node | None:
        """The message of a node, None where it is to be left out."""
        message = self._nodes[key].get("message")
        if not isinstance(message, dict):
            return None
        author, meta = _table(message.get("author")), _table(message.get("metadata"))
        role = author.get("role")
        if meta.get("is_visually_hidden_from_conversation"):
            return None
        text = message_text(_table(message.get("content")), meta.get("content_references"), self._left_out)
        if not text.strip():
            return None
        if role not in ("user", "assistant") or message.get("recipient") not in (None, "all"):
            self._left_out["messages of system or tools"] += 1
            return None
        model = meta.get("model_slug")
        created = _time(message.get("create_time"))
        return _Node(key, role, text, created, one_line(model, 40) if isinstance(model, str) else "")

    def _key(self, id: str) -> str:
        of_message = self._hash.copy()
        of_message.update(_bytes(id))
        return of_message.hexdigest()[:24]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


@cache
def _answered(model: str) -> str:
    return json.dumps(asdict(Answered(model)))


def _place(places: Mapping[str, int], child: str) -> int:
    return places.get(child, len(places))


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _time(value: object) -> float:
    """Seconds since 1970; 0 where it is no date."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= LATEST else 0.0
