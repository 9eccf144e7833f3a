"""Parts: entries of some tokens of a text, in main memory, on disk, or in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from specchat.engine.model.copies import CacheEntries, Tail
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.prefixes.entries import PackedCopies, Shape, bytes_of


class PartForm(NamedTuple):
    """Shapes of the entries and of the tail, and the tail's numbers; None without a tail.

    A `common` tail is one from which several texts go on.
    """

    rows: tuple[Shape, ...]
    ends: tuple[Shape, ...] = ()
    numbers: tuple[int, ...] | None = None
    common: bool = False

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return bytes_of(self.rows) + bytes_of(self.ends)


class Contents(NamedTuple):
    """The entries of a text and its tail, if there is one; a `common` tail is for several texts."""

    entries: CacheEntries
    tail: Tail | None = None
    common: bool = False


@dataclass(eq=False)
class TextPart:
    """Entries of the tokens from `first` on of a text that ends with the last of them, and its tail, if it has one.

    Attributes:
        rows, ends: copies of entries and tail; None where the `file` alone has them.
        used: time of the last use.
        shares: tokens of the text that texts of each chat, or other owner, are known to begin with.
    """

    token_ids: list[int]
    first: int
    form: PartForm
    rows: PackedCopies | None = None
    ends: PackedCopies | None = None
    file: Path | None = None
    used: int = 0
    shares: dict[str, int] = field(default_factory=dict)

    @property
    def owners(self) -> list[str]:
        """The owners of all of the text."""
        return [owner for owner, shared in self.shares.items() if shared == len(self.token_ids)]

    @property
    def size(self) -> int:
        """Bytes of main memory."""
        return sum(packed.whole.nbytes for packed in (self.rows, self.ends) if packed is not None)

    @property
    def tail(self) -> Tail | None:
        """The tail, without tensors where the file alone has them; None for none."""
        if self.form.numbers is None:
            return None
        return Tail(() if self.ends is None else self.ends.tensors, self.form.numbers)

    def forget_file(self) -> None:
        """Remove the file; its owners have changed."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
        self.file = None

    def drop_tail(self) -> None:
        """Go without a tail from here on, but in the file."""
        self.ends, self.form = None, PartForm(self.form.rows)


class PartRun(NamedTuple):
    """A part with the entries of tokens first, ..., last - 1 of another text."""

    part: TextPart
    first: int
    last: int


class PartSource(NamedTuple):
    """A way to the first `length` tokens of a text: parts with their entries, and the one with the tail, if any.

    It may go on from `reach` of them.
    """

    runs: Sequence[PartRun]
    length: int
    reach: int
    end: TextPart | None

    @property
    def parts(self) -> list[TextPart]:
        """All parts, each once."""
        parts = [run.part for run in self.runs if run.first < self.length]
        return parts if self.end is None or self.end in parts else [*parts, self.end]


def alike(parts: Sequence[TextPart], text: Sequence[int]) -> dict[TextPart, int]:
    """Tokens that each part's text shares with `text`."""
    return {part: shared_prefix(part.token_ids, text) for part in parts}


def runs_from(first: int, shared: Mapping[TextPart, int]) -> list[PartRun]:
    """Parts with the entries of a text from `first` on, without a gap, by the tokens that they share with it."""
    runs = list[PartRun]()
    while here := [part for part, alike in shared.items() if part.first <= first < alike]:
        longest = max(here, key=lambda part: (shared[part], part.rows is not None))
        runs.append(PartRun(longest, first, shared[longest]))
        first = shared[longest]
    return runs
