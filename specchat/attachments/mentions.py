"""Files named in a prompt as `@path` or `@"path with spaces"`."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from specchat.attachments.files import Attachment, read_attachment
from specchat.attachments.folders import read_folder
from specchat.clean import clean, one_line
from specchat.dataclass import dataclass

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
_TYPED = re.compile(r'(?<!\S)@(?:"([^"]*)|([^\s"]*))$')
_AROUND = ".,;:!?)]}'"
_LIKE_A_PATH = re.compile(r".*/|.+\.[A-Za-z]\w{0,4}$")
"""The beginning of names that hardly mean anything but a file."""
_MOST = 100
"""Mentions that are looked at in one prompt: more come with a paste, not from someone's fingers."""
_LONGEST_PATH = 4096


@dataclass(frozen=True)
class Typed:
    """A mention being typed: the path so far, and the column of its @."""

    start: int
    path: str


def typed_mention(line: str, column: int) -> Typed | None:
    """The mention that ends at `column` of `line`, if there is one."""
    match = _TYPED.search(line, 0, column)
    return Typed(match.start(), match[1] or match[2] or "") if match else None


def mention(path: str) -> str:
    """`path` as it is written in a prompt."""
    return f'@"{path}"' if re.search(r"\s", path) or path[-1:] in _AROUND else f"@{path}"


def can_be_mentioned(path: str) -> bool:
    """True if a path can be written in a prompt and shown as it is: no quotes, newlines or control codes."""
    return '"' not in path and "\n" not in path and clean(path) == path


def mentioned_paths(prompt: str) -> Iterator[str]:
    """The paths of the files that `prompt` names, as they are written, each once. Looks at the disk."""
    seen: set[str] = set()
    for _, match in zip(range(_MOST), _MENTION.finditer(prompt), strict=False):
        path = _existing(match[1] or match[2], quoted=bool(match[1]))
        if path is not None and path not in seen:
            seen.add(path)
            yield path


def unattached(prompt: str) -> str:
    """A sentence on the first file that `prompt` names and that cannot be had; empty for none. Looks at the disk."""
    for _, match in zip(range(_MOST), _MENTION.finditer(prompt), strict=False):
        name, quoted = match[1] or match[2], bool(match[1])
        if _existing(name, quoted=quoted) is not None:
            continue
        name = name if quoted else name.rstrip(_AROUND)
        with suppress(ValueError):
            if os.path.isdir(os.path.expanduser(name)):
                return f"{one_line(name, 60)} is a folder: write a / at its end to attach its text files"
        if _LIKE_A_PATH.match(name):
            return f"there is no file {one_line(name, 60)}: its name goes as text"
    return ""


def _existing(name: str, *, quoted: bool) -> str | None:
    """`name`, without what punctuation follows it, where that is there; a folder has a slash at its end."""
    while name:
        path = os.path.expanduser(name)
        try:
            if os.path.lexists(path):
                return None if os.path.isdir(path) and not name.endswith("/") else name
        except ValueError:
            return None
        if quoted or name[-1] not in _AROUND:
            return None
        name = name[:-1]
    return None


def carried(
    before: str, attached: Sequence[Attachment], typed: str, read: Sequence[Attachment]
) -> tuple[Attachment, ...]:
    """Return the `attached` files that a prompt keeps when it is edited from `before` to `typed`.

    A file that is `read` anew takes the place of the old one; one whose mention was taken out goes. What was attached
    without a mention, or is not found any more, stays as it was.
    """
    anew = {attachment.name for attachment in read}
    old, new = _written_names(before), _written_names(typed)
    return tuple(one for one in attached if one.name not in anew and (one.name in new or one.name not in old))


def _written_names(prompt: str) -> set[str]:
    """File names after each @, with and without punctuation at the end."""
    written = [match[1] or match[2] for match in _MENTION.finditer(prompt)]
    return {*written, *(name.rstrip(_AROUND) for name in written)}


class Attacher:
    """Reads the files that prompts name; one that did not change since is not read again."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int], list[Attachment]]] = {}
        self.secrets: list[str] = []
        """Files of named folders that stay out because they look like secrets."""

    def attachments(self, prompt: str) -> tuple[Attachment, ...]:
        """The files that `prompt` names, in its order. Waits for the disk.

        Raises:
            AttachmentError: one of them cannot be attached.
        """
        self.secrets = []
        read = {path: self._attachment(path) for path in mentioned_paths(prompt)}
        self._read = read
        return tuple(attachment for _, attachments in read.values() for attachment in attachments)

    def _attachment(self, path: str) -> tuple[tuple[int, int], list[Attachment]]:
        if path.endswith("/"):  # what is in it may change without a sign of its own
            folder = read_folder(Path(path))
            self.secrets += folder.secrets
            return (0, -1), folder.texts
        try:
            status = os.stat(os.path.expanduser(path))
            version = (status.st_mtime_ns, status.st_size)
        except OSError:
            version = (0, -1)
        known = self._read.get(path)
        if known is not None and known[0] == version:
            return known
        return version, [read_attachment(Path(path))]


def pasted_path(pasted: str) -> str | None:
    """The path of the file that a paste is, as terminals paste a file dropped on them; None when it is something else.

    Quotes, escaped spaces and `file://` are taken off; a file below the working directory is named from there. A lone
    name is taken for a word.
    """
    text = pasted.strip()
    if not text or len(text) > _LONGEST_PATH or "\n" in text:
        return None
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    elif text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif os.sep == "/":
        text = re.sub(r"\\(.)", r"\1", text)
    if os.sep not in text and "/" not in text:
        return None
    try:
        path = os.path.abspath(os.path.expanduser(text))
        if not os.path.isfile(path):
            return None
        below = os.path.relpath(path)
    except (OSError, ValueError):
        return None
    path = path if below.startswith("..") else below
    return path if can_be_mentioned(path) else None
