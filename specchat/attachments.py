"""Text files that go along with a message."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Attachment:
    """A file's text under the name it was given by."""

    name: str
    text: str


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """`text`, then each file in a fence that nothing inside it can close."""
    return "\n\n".join([text, *(_fenced(attachment) for attachment in attachments)])


def _fenced(attachment: Attachment) -> str:
    longest = max((len(run) for run in re.findall(r"`+", attachment.text)), default=0)
    fence = "`" * max(longest + 1, 3)
    suffix = attachment.name.rpartition(".")[2] if "." in attachment.name else ""
    return f"{attachment.name}:\n{fence}{suffix}\n{attachment.text.rstrip(chr(10))}\n{fence}"
