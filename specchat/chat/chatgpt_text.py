"""The text of a message in ChatGPT's export: its parts, notes where pictures were, and citations as links."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

_MARK = re.compile(" ?\ue200([^\ue200\ue201]*)\ue201")
"""A citation or the like: its kind and its fields, with private characters between and around them."""
_BETWEEN = "\ue202"
_OLD_MARK = re.compile(" ?【[^【】\n]{1,40}†[^【】\n]{0,80}】")
_REFERENCE = ("\ue200", "【")
"""First characters of what a reference may stand for; some stand for a mere space."""


def message_text(content: Mapping[str, Any], references: object, left_out: Counter[str]) -> str:
    """The text of a message's `content`, its `references` resolved; what has no text is counted in `left_out`."""
    kind, parts = content.get("content_type"), content.get("parts")
    if kind == "code":
        language = content.get("language")
        text, known = content.get("text"), isinstance(language, str) and re.fullmatch(r"[\w+#-]{1,20}", language)
        return f"```{language if known and language != 'unknown' else ''}\n{text}\n```" if text else ""
    if kind not in ("text", "multimodal_text") or not isinstance(parts, list):
        if kind is not None and (content.get("text") or parts):
            left_out["messages of other kinds"] += 1
        return ""
    return _cited("\n\n".join(filter(None, (_part(part, left_out) for part in parts))), references)


def _part(part: object, left_out: Counter[str]) -> str:
    if isinstance(part, str):
        return part
    table = part if isinstance(part, dict) else {}
    if isinstance(text := table.get("text"), str):
        return text
    what = "picture" if "image" in str(table.get("content_type")) else "attachment"
    left_out[f"{what}s"] += 1
    return f"[{what} left out]"


def _cited(text: str, references: object) -> str:
    """The text with its citations as the export words them, mostly links; without words they are left out."""
    if not any(mark in text for mark in _REFERENCE):
        return text
    for reference in references if isinstance(references, list) else []:
        found = reference if isinstance(reference, dict) else {}
        matched, words = found.get("matched_text"), found.get("alt")
        if isinstance(matched, str) and matched.startswith(_REFERENCE) and isinstance(words, str) and words:
            text = text.replace(matched, words)
    return _OLD_MARK.sub("", _MARK.sub(_unreferenced, text))


def _unreferenced(mark: re.Match[str]) -> str:
    """The words in a mark that no reference explains: a name or a link's title; citations have none."""
    kind, _, rest = mark[1].partition(_BETWEEN)
    words = ""
    if kind == "url":
        words = rest.partition(_BETWEEN)[0]
    elif kind == "entity":
        try:
            fields = json.loads(rest)
        except (ValueError, RecursionError):
            fields = None
        words = fields[1] if isinstance(fields, list) and len(fields) > 1 and isinstance(fields[1], str) else ""
    space = " " if mark[0].startswith(" ") and words else ""
    return space + words
