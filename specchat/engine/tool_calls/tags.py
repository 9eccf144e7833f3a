"""Marks of calls: tags and their closing forms."""

import re

TAG = re.compile(r"<\|?[^<>\s]{1,40}(?:>|=|(?=\s))|\[[A-Z][A-Z_]{1,40}\]")
"""A tag; of one with an attribute the part before it."""
_SWAPS = (("begin", "end"), ("START", "END"), ("start", "end"), ("prefix", "suffix"))


def tags_in(text: str) -> list[str]:
    """The tags in a text; of one with an attribute the part before it."""
    return [found[0] for found in TAG.finditer(text)]


def closing_in(opening: str, text: str) -> str:
    """The mark in `text` that closes `opening`, in one of the usual forms; empty where there is none."""
    return next((closing for closing in _closings(opening) if closing and closing in text), "")


def _closings(opening: str) -> list[str]:
    swapped = [opening.replace(begin, end) for begin, end in _SWAPS if begin in opening]
    name = opening.strip("<>|=[]")
    if opening.startswith("["):
        return [*swapped, f"[/{name}]"]
    if opening.startswith("<｜"):
        return [*swapped, f"</{opening[1:].rstrip('>=')}>"]
    return [*swapped, f"</{name}>", f"<|/{name}|>", f"<{name}|>", f"</{name.partition('=')[0]}>"] if opening else []


def literal(text: str) -> str:
    """The pattern of a text in which white space may differ; it never goes back into that."""
    return r"\s*+".join(re.escape(part) for part in re.split(r"\s+", text))
