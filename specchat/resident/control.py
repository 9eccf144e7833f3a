"""Ask resident engines what they do, or to end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specchat.engine.prefixes.on_disk import remove_chat
from specchat.resident import handshake
from specchat.resident.shared import ANSWER_S, connected


def forget_chat(folder: Path, chat: str) -> None:
    """Have all engines with sockets in `folder` forget what was read for a deleted chat, and remove it from disk."""
    for _ in engines(folder, "forget", chat):
        pass
    remove_chat(chat)


def engines(folder: Path, want: str, chat: str = "") -> Iterator[dict[str, Any]]:
    """Answers of all resident engines with sockets in `folder`, of any version, to "status", "stop" or "forget".

    With a `chat` they forget what was read for it alone.
    """
    for path in sorted(folder.glob("*.sock")):
        link = connected(path)
        if link is None:
            continue
        with link, contextlib.suppress(OSError):
            link.settimeout(ANSWER_S)
            link.sendall(handshake.encoded(want=want, chat=chat))
            with link.makefile("rb") as answer:
                found = handshake.parsed(answer.readline(handshake.MAX_BYTES))
                if found is not None:
                    if want == "stop":
                        answer.read(1)  # it closes the connection as it ends
                    yield found
