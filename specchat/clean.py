"""Make text from models, files, names and errors safe to show on a terminal, and links safe to open."""

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u206a-\u206f"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}]")
_SHOWN = {"\x1b": "␛", "\u2028": "\n", "\u2029": "\n"}


def _replace(match: re.Match[str]) -> str:
    char = match[0]
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"
    return _SHOWN.get(char, "")


def clean(text: str) -> str:
    """`text` without control codes (tab and newline stay), bidi controls and lone surrogates; ESC becomes ␛.

    Characters are judged one by one, so cleaning chunks of a stream gives what cleaning the whole would:
    `clean(a) + clean(b) == clean(a + b)`.
    """
    return _UNSAFE.sub(_replace, text)


def valid(text: str) -> str:
    """`text` with U+FFFD for halves of surrogate pairs, which no encoding has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(text: str, limit: int = 200) -> str:
    """`text` cleaned, on one line, cut to `limit` characters: for titles, names and list entries."""
    line = " ".join(clean(text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def is_web_link(url: str) -> bool:
    """True if a link may be opened: http and https only."""
    return url.lower().startswith(("http://", "https://"))
