"""Rows of a pass, and sub-layers that it skips."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specchat.engine.model.tree_layout import Layout


@dataclass(frozen=True)
class Skip:
    """Sub-layers that a forward pass skips (SWIFT): indices of layers, for attention and for the MLP."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()


NOTHING = Skip()


class PassRows(NamedTuple):
    """Rows of a pass: consecutive tokens from position `start` on, or with `layout` nodes of a tree after the text.

    With `until` they are some of a picture whose rows attend to each other, up to that position.
    """

    tokens: Sequence[int]
    start: int
    layout: Layout | None = None
    until: int = 0
