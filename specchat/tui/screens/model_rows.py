"""Rows of the list of models: columns as wide as there is room."""

from collections.abc import Sequence

from textual.content import Content

from specchat.clean import one_line
from specchat.models import words
from specchat.models.offers import Offer

Columns = Sequence[tuple[str, int]]
_COLUMNS: Columns = (("size", 17), ("fits", 20), ("plain", 9), ("licence", 16))
_NARROW: Columns = (("size", 10), ("fits", 6))
_ROOMY = 100
"""Cells from which all columns are shown; in fewer, name, size and fit, in `_SHORT` words below that."""
_SHORT = 56


class ModelRows:
    """The columns at a width in cells."""

    def __init__(self, width: int) -> None:
        self._columns = _COLUMNS if width >= _ROOMY else _COLUMNS[:3] if width >= _SHORT else _NARROW
        self._room = max(width - sum(cells for _, cells in self._columns), 8)
        self.head = ("model".ljust(self._room) + "".join(name.ljust(cells) for name, cells in self._columns))[:width]

    def row(self, offer: Offer, mark: str, share: str) -> Content:
        """The row of `offer`; `mark` follows the name, `share` of a download stands in the place of its size."""
        name = one_line(offer.pair.spec.name, max(self._room - len(mark) - 1, 4))
        cells = (*self._facts(offer, share), "")[: len(self._columns)]
        pairs = zip(cells, self._columns, strict=True)
        tail = Content("").join(_filled(Content(one_line(cell, size - 1)), size) for cell, (_, size) in pairs)
        title = Content.styled(name, "bold") + Content.styled(mark, "$accent")
        return _filled(title, self._room) + Content.styled(tail.plain, "$quiet")

    def _facts(self, offer: Offer, share: str) -> tuple[str, ...]:
        amount = share or words.amount(offer)
        if self._columns is _NARROW:
            return amount.replace("download ", "↓ "), offer.fit.verdict
        return amount, words.fits(offer), words.speed(offer), offer.licence


def _filled(text: Content, cells: int) -> Content:
    """`text` cut or filled up to a number of cells: a wide character fills two."""
    cut = text.truncate(cells - 1, ellipsis=True) if text.cell_length >= cells else text
    return cut + " " * max(cells - cut.cell_length, 0)
