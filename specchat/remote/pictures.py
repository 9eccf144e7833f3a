"""Pictures of messages in OpenAI's form, and whether the model of a server reads them."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from specchat.engine.pictures.decode import MOST_BYTES, OTHER_FILE
from specchat.engine.protocol.options import Message, Picture
from specchat.engine.protocol.pair import ServerKind
from specchat.remote.connection import CONNECT_S, ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table

MEDIA = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp", b"GIF8": "gif", b"BM": "bmp"}
"""Types of pictures by the beginnings of their files."""
PERHAPS = (400, 404, 413, 415, 422, 500, 501)
"""Statuses by which servers refuse pictures; llama.cpp's says 500."""


def with_pictures(messages: Sequence[Message]) -> bool:
    return any(message.pictures for message in messages)


def content(message: Message) -> str | list[dict[str, Any]]:
    """The content of a message: its text, or parts where it has pictures, whose files go as they are.

    Raises:
        ServerError: a picture is too large, or of an unknown format.
    """
    if not message.pictures:
        return message.content
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": _url(part)}}
        for part in message.parts
    ]


def _url(picture: Picture) -> str:
    if len(picture.data) > MOST_BYTES:
        raise ServerError(f"A picture has more than {MOST_BYTES >> 20} MiB. Send a smaller copy of it.", "request")
    media = next((name for head, name in MEDIA.items() if picture.data.startswith(head)), "")
    if not media:
        raise ServerError(f"A picture is of a format that is not sent. {OTHER_FILE}", "request")
    return f"data:image/{media};base64,{b64encode(picture.data).decode()}"


def explained(error: ServerError, messages: Sequence[Message]) -> ServerError:
    """An error that ended a reply to messages, with what to do where their pictures may be its cause."""
    if error.status not in PERHAPS or error.kind == "context" or not with_pictures(messages):
        return error
    words = f"{error.message} If that is for the pictures, leave them out, or choose another model."
    return ServerError(words, error.kind, error.status)


async def reads_pictures(connection: ServerConnection, kind: ServerKind, model: Mapping[str, Any]) -> bool | None:
    """True if a `model`, an entry of the server's list, reads pictures; None if the server does not say."""
    if kind == "triton":
        return False  # prompts go there as text
    name = str(model.get("id", ""))
    pages: Mapping[ServerKind, Mapping[str, Mapping[str, Any] | None]] = {
        "llama.cpp": {"/props": None},
        "specchat": {"/props": None},
        "sglang": {"/model_info": None, "/get_model_info": None},
        # Ollama's and LM Studio's.
        "openai": {"/api/show": {"model": name}, f"/api/v0/models/{quote(name, safe='')}": None},
    }
    said = _said(model)
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_S):
            for path, body in pages.get(kind, {}).items():
                with suppress(ServerError):
                    if said is None:
                        page = await (connection.get(path) if body is None else connection.post(path, body))
                        said = _said(table(page))
    return said


def _said(about: Mapping[str, Any]) -> bool | None:
    """The answer to `reads_pictures` in a server's facts about a model, in the form of any kind of server."""
    if (kind := about.get("type")) in ("vlm", "llm"):  # LM Studio
        return bool(kind == "vlm")
    able, kinds = about.get("capabilities"), table(about.get("architecture")).get("input_modalities")
    if isinstance(kinds, list):  # llama.cpp, OpenRouter, specchat
        return "image" in kinds
    if isinstance(able, list) and ("completion" in able or "vision" in able):  # Ollama
        return "vision" in able
    # Mistral, llama.cpp's properties, SGLang.
    values = (table(able).get("vision"), table(about.get("modalities")).get("vision"))
    return next((one for one in (*values, about.get("has_image_understanding")) if isinstance(one, bool)), None)
