"""Chats as rows of the database, which are also what a JSON export holds."""

import json
import secrets
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, field, replace
from functools import cache, partial
from typing import Any, Literal, TypeVar, cast

from specchat.attachments.files import Attachment
from specchat.attachments.pictures import AttachedPicture
from specchat.chat.fork import new_key
from specchat.chat.record import Mark, Record
from specchat.chat.tool_results import ToolResult
from specchat.chat.trace import Columns
from specchat.chat.tree import Conversation
from specchat.chat.turn import PromptRead, Reply, ReplyEnd, SavedRecord, Turn
from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import FinishReason
from specchat.engine.protocol.options import (
    NOTHING_WRITTEN,
    Beginning,
    Ranges,
    Sampling,
    Speculation,
    ToolCall,
    Written,
)
from specchat.engine.protocol.stats import Stats

INTERRUPTED = "interrupted: specchat ended while this was being written"

RowState = Literal["sent", "writing", "finished", "failed"]
Recorded = Callable[[str, int], Record | None]
"""Gives what was recorded of the reply with a key, whose first step began after so many characters of its text."""
PictureFile = Callable[[str], bytes | None]
"""Gives the file of the picture with a digest."""


@dataclass(frozen=True)
class ChatEntry:
    """A line of the list of chats; `preview` is the beginning of the last message, on one line."""

    key: str
    title: str
    pinned: bool
    updated: float
    messages: int
    preview: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChatRow:
    """A chat without its messages. Times in seconds since 1970; `view` is what the app wants to find again."""

    key: str
    name: str = ""
    title: str = ""
    system: str = ""
    pinned: bool = False
    tags: tuple[str, ...] = ()
    created: float = 0.0
    updated: float = 0.0
    view: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MessageRow:
    """A prompt or a reply; `parent` is the message it follows. `meta` is the JSON of a `Sent` or `Answered`."""

    key: str
    parent: str | None
    role: Literal["user", "assistant"]
    text: str
    created: float
    state: RowState
    meta: str = "{}"


@dataclass(frozen=True)
class WholeChat:
    """A chat with all that belongs to it.

    Messages are parents before children, records by the keys of replies, pictures by their digests.
    """

    row: ChatRow
    messages: tuple[MessageRow, ...] = ()
    traces: Mapping[str, Columns] = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class SentFile:
    """An attachment; a picture has no text, but a digest."""

    name: str
    text: str = ""
    picture: str = ""
    format: str = ""
    width: int = 0
    height: int = 0
    small: str = ""
    """Base64 of what the transcript shows of it."""
    whole: int = 0

    @classmethod
    def of(cls, attachment: Attachment) -> "SentFile":
        if (picture := attachment.picture) is None:
            return cls(attachment.name, attachment.text, whole=attachment.whole)
        small = b64encode(picture.small).decode()
        return cls(attachment.name, "", picture.digest, picture.format, picture.width, picture.height, small)

    def attachment(self, load: PictureFile) -> Attachment:
        if not self.picture:
            return Attachment(self.name, self.text, whole=self.whole)
        try:
            small = b64decode(self.small)
        except ValueError:
            small = b""
        format, file = one_line(self.format, 10), partial(load, self.picture)
        picture = AttachedPicture(self.picture, format, self.width, self.height, small, file)
        return Attachment(self.name, picture=picture)


@dataclass(frozen=True)
class Sent:
    """A prompt's properties beside its text."""

    attachments: tuple[SentFile, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True)
class Answered:
    """A reply's properties beside its text."""

    name: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    prompt_tokens: int = 0
    reused: int = 0
    dropped: int = 0
    prefill: str = ""
    begun: Written | None = None
    reason: FinishReason | None = None
    error: str = ""
    stats: Stats | None = None
    marks: tuple[Mark, ...] = ()
    reasoning: Ranges | None = None
    """Ranges of the text that are reasoning; None where they are unknown."""
    thinking: bool = False
    token_ids: tuple[int, ...] = ()
    """Fields of a reply that can go on."""
    tool_calls: tuple[ToolCall, ...] = ()


Meta = TypeVar("Meta", Sent, Answered)


def chat_row(chat: Conversation, updated: float, view: Mapping[str, Any]) -> ChatRow:
    """A chat as it is now; pins and tags are for `Store.pin` and `Store.tag` alone."""
    leaf = with_leaf(view, chat)
    return ChatRow(chat.key, chat.name, chat.title, chat.system, created=chat.created, updated=updated, view=leaf)


def with_leaf(view: Mapping[str, Any], chat: Conversation) -> dict[str, Any]:
    """`view` with the end of the path that is shown."""
    leaf = chat.last.reply or chat.last if chat.last else None
    return {**view, "leaf": leaf.key if leaf else ""}


def turn_row(turn: Turn) -> MessageRow:
    parent = turn.parent.key if turn.parent else None
    sent = Sent(tuple(map(SentFile.of, turn.attachments)), turn.results)
    meta = "{}" if sent == Sent() else json.dumps(asdict(sent))
    return MessageRow(turn.key, parent, "user", turn.prompt, turn.created, "sent", meta)


def reply_row(reply: Reply) -> MessageRow:
    """A reply as it is now."""
    state: RowState = "writing"
    if reply.ended:
        state = "failed" if reply.state == "failed" else "finished"
    written = reply.written
    meta = Answered(
        reply.name,
        reply.sampling,
        reply.speculation,
        reply.prompt.tokens,
        reply.prompt.reused,
        reply.prompt.dropped,
        reply.start.prefill,
        reply.start.begun if reply.start.begun.text else None,
        reply.end.reason,
        reply.end.error,
        reply.end.stats,
        tuple(reply.marks) if reply.ended else (),
        None if reply.reasoning is None else written.reasoning,
        written.thinking,
        written.token_ids,
        written.tool_calls,
    )
    parent = reply.turn.key if reply.turn else None
    return MessageRow(reply.key, parent, "assistant", written.text, reply.created, state, json.dumps(asdict(meta)))


def message_rows(chat: Conversation) -> list[MessageRow]:
    """All messages of a chat as they are now, parents before children."""
    return [row for turn in chat.every_turn() for row in (turn_row(turn), *map(reply_row, turn.replies))]


def conversation(row: ChatRow, messages: Iterable[MessageRow], record: Recorded, picture: PictureFile) -> Conversation:
    """The chat that the rows hold. Rows whose parent is missing are left out.

    `record` loads a reply's record by its key, and `picture` a picture's file, on first use.
    """
    chat = Conversation(row.system, row.key, row.name, row.title, row.created)
    children: dict[str | None, list[MessageRow]] = {}
    for message in messages:
        children.setdefault(message.parent, []).append(message)
    waiting: deque[tuple[MessageRow, Turn | Reply | None]] = deque((root, None) for root in children.get(None, ()))
    while waiting:
        message, parent = waiting.popleft()
        added: Turn | Reply
        if isinstance(parent, Turn):
            added = _reply(message, record)
            chat.answer(parent, added)
        else:
            added = chat.add(_turn(message, parent, picture))
        waiting += [(child, added) for child in children.get(message.key, ())]
    leaf = row.view.get("leaf")
    if isinstance(leaf, str) and (shown := chat.find(leaf)) is not None:
        chat.show(shown)
    return chat


def merge(chat: Conversation, messages: Iterable[MessageRow], record: Recorded, picture: PictureFile) -> bool:
    """Add what another program wrote in a chat: prompts, and replies that have ended.

    What is shown stays, with what follows below it. Gives whether there was anything.
    """
    known: dict[str | None, Turn | Reply | None] = {None: None}
    for turn in chat.every_turn():
        known |= {turn.key: turn, **{reply.key: reply for reply in turn.replies}}
    end = (chat.last.reply or chat.last) if chat.last else None
    before = len(known)
    for row in messages:
        if row.key in known or row.parent not in known or row.state == "writing":
            continue
        parent = known[row.parent]
        if row.role == "assistant" and isinstance(parent, Turn):
            known[row.key] = reply = _reply(row, record)
            chat.answer(parent, reply)
        elif row.role == "user" and not isinstance(parent, Turn):
            known[row.key] = chat.add(_turn(row, parent, picture))
    if end is not None and not any(end in (turn, turn.reply) for turn in chat.turns):
        chat.show(end)
    return len(known) > before


def _turn(row: MessageRow, parent: Reply | None, picture: PictureFile) -> Turn:
    sent = _read(Sent, row.meta)
    files = tuple(file.attachment(picture) for file in sent.attachments)
    return Turn(row.text, files, parent, sent.results, key=row.key, created=row.created)


def _reply(row: MessageRow, record: Recorded) -> Reply:
    meta = _read(Answered, row.meta)
    reply = Reply(0, one_line(meta.name, 40), meta.sampling, meta.speculation, key=row.key, created=row.created)
    reply.state = "finished" if row.state == "finished" else "failed"
    error = INTERRUPTED if row.state == "writing" else clean(meta.error)
    reply.start = Beginning(meta.prefill, meta.begun or NOTHING_WRITTEN)
    reply.prompt = PromptRead(meta.prompt_tokens, meta.reused, meta.dropped)
    reply.end = ReplyEnd(meta.reason, error, meta.stats)
    marks = tuple(replace(mark, text=one_line(mark.text)) for mark in meta.marks)
    written = Written(row.text, _sound(meta.reasoning or (), len(row.text)), meta.thinking, meta.token_ids)
    written = replace(written, tool_calls=meta.tool_calls)
    beginning = len(clean(meta.begun.text if meta.begun else meta.prefill))
    saved = SavedRecord(lambda: record(row.key, beginning), marks)
    reply.restore(written, saved, known=meta.reasoning is not None)
    return reply


def _sound(ranges: Ranges, length: int) -> Ranges:
    """The ranges within a text of this length, each behind the one before."""
    sound: list[tuple[int, int]] = []
    for start, end in ranges:
        if (sound[-1][1] if sound else 0) <= start < end <= length:
            sound.append((start, end))
    return tuple(sound)


def renamed(
    chat: ChatRow, messages: list[MessageRow], traces: Mapping[str, bytes]
) -> tuple[ChatRow, list[MessageRow], dict[str, bytes]]:
    """A chat with new keys for itself and its messages."""
    new = {message.key: f"{new_key()}{secrets.token_hex(2)}" for message in messages}
    view = dict(chat.view)
    view["leaf"] = new.get(str(view.get("leaf")), "")
    added = [replace(m, key=new[m.key], parent=new.get(m.parent) if m.parent else None) for m in messages]
    return replace(chat, key=new_key(), view=view), added, {new[key]: blob for key, blob in traces.items()}


def check_meta(role: Literal["user", "assistant"], text: str) -> None:
    """Raise ValueError where `text` is not the JSON that a message of `role` has as its `meta`."""
    if role == "user":
        _parsed(Sent, text)
    else:
        _parsed(Answered, text)


def readable(row: MessageRow) -> MessageRow:
    """`row`, without its `meta` where that is no JSON: the message counts more than its figures."""
    try:
        json.loads(row.meta)
    except ValueError:
        return replace(row, meta="{}")
    return row


def _read(kind: type[Meta], text: str) -> Meta:
    """The JSON as a `kind`; its defaults where it cannot be read, for the message counts more than its figures."""
    if text == "{}":
        return kind()
    try:
        return _parsed(kind, text)
    except ValueError:
        return kind()


def _parsed(kind: type[Meta], text: str) -> Meta:
    return cast(Meta, _adapters()[kind.__name__].validate_json(text))


@cache
def _adapters() -> dict[str, Any]:
    from pydantic import TypeAdapter

    return {kind.__name__: TypeAdapter(kind) for kind in (Sent, Answered)}
