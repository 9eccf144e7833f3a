"""Chats as JSON, without loss: `{"format": "specchat", "version": 2, "chats": [...]}`. docs/chats.md describes it."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specchat.chat.files import ChatFileError
from specchat.chat.rows import ChatRow, MessageRow, WholeChat, check_meta
from specchat.chat.sql import LATEST
from specchat.chat.tags import tags_in
from specchat.chat.trace import record_of
from specchat.clean import one_line
from specchat.engine.protocol.options import Picture

FORMAT = "specchat"
VERSION = 2
"""Version 1 has neither tags nor pictures."""
_DEEPEST = 100
"""Levels of data whose form is not known here; more of them could not be written again."""

_LONE = re.compile("[\ud800-\udfff]")
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Time = Annotated[float, Field(ge=0, le=LATEST)]
Title = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=100_000_000)]
Model = TypeVar("Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Message(_Strict):
    key: Key
    parent: Key | None
    role: Literal["user", "assistant"]
    text: Text
    created: Time
    state: Literal["sent", "writing", "finished", "failed"]
    meta: dict[str, Any]


class _Chat(_Strict):
    key: Key
    name: Title
    title: Title
    system: Text
    pinned: bool
    tags: list[Title] = []
    created: Time
    updated: Time
    view: dict[str, Any]
    messages: list[_Message]
    traces: dict[Key, dict[str, Any]]
    pictures: dict[Key, Text] = {}


class _ChatFile(_Strict):
    format: Literal["specchat"]
    version: int
    chats: list[_Chat]


def as_json(chats: Iterable[WholeChat]) -> Iterator[str]:
    """The file's text in pieces: a line a message and a record."""
    yield f'{{"format": "{FORMAT}", "version": {VERSION}, "chats": ['
    for number, chat in enumerate(chats):
        yield ",\n" if number else "\n"
        yield from _chat_json(chat)
    yield "\n]}\n"


def _chat_json(chat: WholeChat) -> Iterator[str]:
    head = _dumps(asdict(chat.row))
    yield head[:-1] + ', "messages": ['
    for number, message in enumerate(chat.messages):
        yield ",\n  " if number else "\n  "
        yield _dumps(asdict(message) | {"meta": json.loads(message.meta)})
    yield '],\n "traces": {'
    for number, (key, columns) in enumerate(chat.traces.items()):
        yield (",\n  " if number else "\n  ") + f"{_dumps(key)}: {_dumps(columns)}"
    yield '},\n "pictures": {'
    for number, (digest, data) in enumerate(chat.pictures.items()):
        yield (",\n  " if number else "\n  ") + f'{_dumps(digest)}: "{b64encode(data).decode()}"'
    yield "}}"


def _dumps(data: object) -> str:
    """JSON whose letters stay readable; halves of characters, which UTF-8 cannot hold, as escapes."""
    return _LONE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(data, ensure_ascii=False))


def from_json(data: object, name: str) -> list[WholeChat]:
    """The chats of a file's data.

    Raises:
        ChatFileError: something in it is not as this version writes it; the message says where. `name` is the file's.
    """
    version = data.get("version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise ChatFileError(
            f"{name} was written by a newer specchat (version {version} of the format). Update specchat."
        )
    if version not in (1, VERSION):
        raise ChatFileError(
            f"{name}: version is {one_line(repr(version), 40)}; this specchat reads versions 1 to {VERSION}."
        )
    try:
        file = _ChatFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ChatFileError(f"{name}: {_place(first['loc'])}: {one_line(first['msg'])}.") from None
    return [_whole(chat, f"{name}: chats[{number}]") for number, chat in enumerate(file.chats)]


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return one_line(text.removeprefix("."))


def _whole(chat: _Chat, place: str) -> WholeChat:
    roles: dict[str, str] = {}
    messages = []
    for number, message in enumerate(chat.messages):
        here = f"{place}.messages[{number}]"
        if message.key in roles:
            raise ChatFileError(f'{here}: the key "{message.key}" is used twice.')
        if message.parent is not None and message.parent not in roles:
            raise ChatFileError(f'{here}: its parent "{message.parent}" does not stand before it.')
        follows = "user" if message.role == "assistant" else "assistant"
        if (roles[message.parent] if message.parent else "assistant") != follows:
            raise ChatFileError(f"{here}: prompts follow replies, and replies prompts, but this one does not.")
        if _too_deep(message.meta, _DEEPEST):
            raise ChatFileError(f"{here}.meta: it is nested too deeply.")
        meta = json.dumps(message.meta)
        try:
            check_meta(message.role, meta)
        except ValueError as error:
            raise ChatFileError(f"{here}.meta: {_reason(error)}.") from None
        roles[message.key] = message.role
        values = message.model_dump(exclude={"meta"})
        messages.append(MessageRow(**values, meta=meta))
    for key, columns in chat.traces.items():
        if roles.get(key) != "assistant":
            raise ChatFileError(f'{place}.traces: there is no reply "{key}".')
        if _too_deep({name: part for name, part in columns.items() if name != "steps"}, _DEEPEST):
            raise ChatFileError(f"{place}.traces.{key}: it is nested too deeply.")
        try:
            record_of(columns)
        except ValueError as error:
            raise ChatFileError(f"{place}.traces.{key}: {_reason(error)}.") from None
    if _too_deep(chat.view, _DEEPEST):
        raise ChatFileError(f"{place}.view: it is nested too deeply.")
    pictures = {digest: _picture(digest, text, place) for digest, text in chat.pictures.items()}
    rest = chat.model_dump(exclude={"messages", "traces", "pictures", "tags"})
    return WholeChat(ChatRow(**rest, tags=tags_in(" ".join(chat.tags))), tuple(messages), chat.traces, pictures)


def _picture(digest: str, text: str, chat: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        data = b""
    if Picture(data).digest != digest:
        raise ChatFileError(f"{chat}.pictures.{digest}: it is no base64 of the picture with this digest.")
    return data


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{_place(first['loc'])}: {one_line(first['msg'])}"
    return one_line(str(error))


def _too_deep(data: object, room: int) -> bool:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return room < 0 or any(_too_deep(part, room - 1) for part in inner)
