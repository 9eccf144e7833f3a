"""Tags of chats. A tag may be a path, such as `work/reports`, which stands for a folder within another."""

import re
from collections.abc import Iterable, Sequence

from specchat.clean import one_line

LONGEST = 40
"""Characters of a tag."""
MOST = 20
"""Tags of a chat."""
_BETWEEN = re.compile(r"[\s,]+")


def tags_in(text: str) -> tuple[str, ...]:
    """The tags that `text` names, with or without `#`, between spaces or commas; each once."""
    return _each_once(one_line(word, LONGEST) for word in _BETWEEN.split(text))


def changed(tags: Sequence[str], text: str) -> tuple[str, ...]:
    """`tags` with those that `text` names; one with a minus before it is taken away."""
    words = _BETWEEN.split(text)
    gone = {tag.casefold() for word in words if word.startswith("-") for tag in tags_in(word[1:])}
    added = tags_in(" ".join(word for word in words if not word.startswith("-")))
    return _each_once(tag for tag in (*tags, *added) if tag.casefold() not in gone)


def asked_for(query: str) -> tuple[tuple[str, ...], str]:
    """The tags that a search asks for (`#work`), and its other words."""
    words = query.split(" ")
    wanted = tags_in(" ".join(word for word in words if word.startswith("#")))
    return wanted, " ".join(word for word in words if not word.startswith("#"))


def has_all(tags: Iterable[str], wanted: Iterable[str]) -> bool:
    """True if each of the `wanted` is the beginning of one of the tags."""
    folded = [tag.casefold() for tag in tags]
    return all(any(tag.startswith(begins.casefold()) for tag in folded) for begins in wanted)


def shown_tags(tags: Iterable[str]) -> str:
    """`#work #urgent`."""
    return " ".join(f"#{tag}" for tag in tags)


def _each_once(tags: Iterable[str]) -> tuple[str, ...]:
    by_folded = {tag.casefold(): tag for tag in (tag.strip("#/") for tag in tags) if tag}
    return tuple(by_folded.values())[:MOST]
