"""Pictures in requests, as base64 alone: nothing is fetched for a client."""

import base64
from collections.abc import Sequence

from specchat.engine.protocol.options import PLACE, Message, Picture
from specchat.serve.errors import ApiError
from specchat.serve.fields import TEXTS, ContentPart, text_of

KINDS = ("image", "image_url", "input_image")
"""Types of parts: Anthropic's, and OpenAI's in chats and in responses."""


def asked(content: str | Sequence[ContentPart] | None, where: str, *, earlier: bool, sees: bool) -> Message:
    """A user's message, with its pictures where the model `sees`; `earlier` as for `text_of`.

    Raises:
        ApiError: a part is neither a text nor such a picture.
    """
    if not sees or content is None or isinstance(content, str):
        return Message("user", text_of(content, where, earlier=earlier))
    text, pictures, before = "", list[Picture](), ""
    for part in content:
        if part.type in KINDS:
            pictures.append(_picture(part, where))
            text += PLACE
        else:
            between = "\n" * (before in TEXTS)
            text += between + text_of([part], where, earlier=earlier).replace(PLACE, "")
        before = part.type
    return Message("user", text, pictures=tuple(pictures))


def _picture(part: ContentPart, where: str) -> Picture:
    url = part.image_url.get("url") if isinstance(part.image_url, dict) else part.image_url
    data = part.source.get("data") if isinstance(part.source, dict) and part.source.get("type") == "base64" else None
    if isinstance(url, str) and url.startswith("data:"):
        head, _, body = url.partition(",")
        data = body if head.endswith(";base64") else None
    if not isinstance(data, str):
        raise ApiError(
            400, f"{where}: pictures are taken as base64, in a data: URL or a source; none is fetched.", where
        )
    try:
        return Picture(base64.b64decode(data, validate=True))
    except ValueError:
        raise ApiError(400, f"{where}: a picture's base64 is damaged.", where) from None
