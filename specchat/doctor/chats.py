"""The database of chats: whether it opens, and what is in it."""

from pathlib import Path

from specchat.chat.checkup import look_into
from specchat.chat.schema import StoreError
from specchat.doctor.finding import Finding, note, ok

MIB = 1 << 20


def chats(path: Path) -> Finding:
    """A note where `path` cannot be used: specchat then keeps chats in memory."""
    try:
        found = look_into(path)
    except StoreError as error:
        return note("chats", str(error))
    if found is None:
        return ok("chats", f"no {path} yet: made with the first chat")
    held = f"{_several(found.chats, 'chat')}, {_several(found.messages, 'message')}, {found.size / MIB:.1f} MiB"
    outdated = ", upgraded when specchat opens it" if found.outdated else ""
    return ok("chats", f"{path}: {held}, schema {found.version}{outdated}")


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
