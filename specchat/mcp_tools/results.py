"""A tool's result as text for the model: cleaned, and no longer than it may be."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specchat.clean import clean, one_line

if TYPE_CHECKING:
    from mcp_types import CallToolResult

_NOTHING = "(the tool returned nothing)"


def as_text(result: "CallToolResult", most: int) -> str:
    """The text of a result in at most about `most` characters; other content is named only."""
    parts = list(_parts(result))
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return cut("\n".join(parts), most) or _NOTHING


def cut(text: str, most: int) -> str:
    """`text` cleaned, its end cut off beyond `most` characters, with a note that says so."""
    shown = clean(text[: most * 2])[:most]
    if len(text) <= most:
        return shown
    return f"{shown}\n[cut: the first {len(shown):,} of {len(text):,} characters]"


def _parts(result: "CallToolResult") -> Iterator[str]:
    content: Any
    for content in result.content:
        match content.type:
            case "text":
                yield content.text
            case "image" | "audio":
                yield f"[{content.type}, {one_line(content.mime_type, 60)}: only text can be read here]"
            case "resource" if isinstance(text := getattr(content.resource, "text", None), str):
                yield text
            case "resource":
                yield f"[file {one_line(str(content.resource.uri))}: only text can be read here]"
            case "resource_link":
                yield f"[link to {one_line(str(content.uri))}]"
