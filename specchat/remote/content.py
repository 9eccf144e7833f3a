"""Content of a message: a text, or a list of parts with texts and reasoning."""

from dataclasses import dataclass
from typing import Any

from specchat.remote.json_values import table, valid_text

_TEXTS = ("text", "refusal", "thinking", "reasoning", "content")
"""Keys of a part's text."""


@dataclass(frozen=True)
class Content:
    """The answer and the reasoning in a content; `unread` is the type of a part that is neither."""

    text: str = ""
    reasoning: str = ""
    unread: str = ""


def read_content(value: Any) -> Content:
    """Read any JSON as a message's content."""
    texts, thoughts, unread = list[str](), list[str](), ""
    parts = [(value, False)]
    while parts:
        part, reasons = parts.pop()
        if isinstance(part, list):
            parts += [(one, reasons) for one in reversed(part)]
            continue
        if isinstance(part, str):
            (thoughts if reasons else texts).append(valid_text(part))
            continue
        kind = valid_text(table(part).get("type"))
        inner = next((part[key] for key in _TEXTS if table(part).get(key) is not None), None)
        if inner is not None:
            parts.append((inner, reasons or kind in ("thinking", "reasoning")))
        elif part is not None:
            unread = unread or kind or type(part).__name__
    return Content("".join(texts), "".join(thoughts), unread)
