"""The text files of a folder, within bounds, and without what is hidden, made by programs, or secret."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from specchat.attachments.files import Attachment, AttachmentError, read_attachment
from specchat.clean import one_line
from specchat.dataclass import dataclass

MOST_FILES, MOST_BYTES = 200, 1_000_000
"""Files that go along at once, and bytes of all of them."""
LOOKED_AT = 20_000
"""Entries of a folder, and of those in it, that are looked at."""
MADE = frozenset(("node_modules", "__pycache__", "venv", "site-packages", "dist", "build", "target", "vendor"))
"""Folders whose files programs make."""
SECRET = re.compile(
    r"(?i).*\.(env|pem|key|p12|pfx|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519)|credentials.*|secrets?\..*|passwords?.*"
)
"""Names of files that go along only where each is named itself."""
SECRETS_NAMED = 3


@dataclass(frozen=True)
class Folder:
    """The text files of a folder, and the paths of those left out because they look like secrets."""

    texts: list[Attachment]
    secrets: list[str]


def read_folder(path: Path) -> Folder:
    """The text files in a folder and in those below it, in order of their names; links are not followed.

    Hidden files, those that programs make, and files with secrets are left out, as is what is no text.

    Raises:
        AttachmentError: there are none, or more than bounds allow.
    """
    name = one_line(str(path))
    found, secrets, size = list[Attachment](), list[str](), 0
    for file in _files(Path(os.path.expanduser(path)), name):
        base = os.path.basename(file)
        if SECRET.fullmatch(base):
            secrets.append(os.path.join(path, file))
            continue
        if base.startswith("."):
            continue
        try:
            attached = read_attachment(path / file)
        except AttachmentError:
            continue
        if attached.picture is not None:
            continue
        found.append(attached)
        size += len(attached.text.encode())
        if len(found) > MOST_FILES or size > MOST_BYTES:
            most = f"{MOST_FILES} files and {MOST_BYTES // 1_000_000} MB go along at once"
            raise AttachmentError(f"{name} has more text than that: {most}. Name a folder in it, or its files.")
    if not found:
        raise AttachmentError(f"{name} has no text files that go along. Name the files that you mean.")
    return Folder(found, secrets)


def about_secrets(secrets: Sequence[str]) -> str:
    """A sentence on files that stay out because they look like secrets; empty for none."""
    if not secrets:
        return ""
    names = [one_line(file, 60) for file in secrets[:SECRETS_NAMED]]
    if len(secrets) > SECRETS_NAMED:
        names.append(f"{len(secrets) - SECRETS_NAMED} more")
    return f"Files that look like secrets stay out: {', '.join(names)}. Name one itself to send it."


def _files(root: Path, name: str) -> Iterator[str]:
    """The regular files below `root`, by their paths from there."""
    looked = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one.lower() not in MADE)
        looked += len(folders) + len(files)
        if looked > LOOKED_AT:
            raise AttachmentError(f"{name} has over {LOOKED_AT:,} files. Name a folder in it, or its files.")
        for file in sorted(files):
            whole = os.path.join(folder, file)
            try:
                regular = stat.S_ISREG(os.lstat(whole).st_mode)
            except OSError:
                continue
            if regular:
                yield os.path.relpath(whole, root)
