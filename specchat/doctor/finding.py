"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]
"""A note is worth knowing; a problem keeps specchat from working."""


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was looked at, how it is, and what to do about it."""

    name: str
    status: Status
    text: str


def ok(name: str, text: str) -> Finding:
    return Finding(name, "ok", text)


def note(name: str, text: str) -> Finding:
    return Finding(name, "note", text)


def problem(name: str, text: str) -> Finding:
    return Finding(name, "problem", text)
