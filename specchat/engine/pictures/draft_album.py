"""Pictures as a draft model sees them, by the tower of its own checkpoint.

Looking takes time, and whether the draft then guesses so much more depends on models and questions. So the pictures
that come first are not looked at, the next ones are, and from then on what has taken less time a token. A picture's
form stays for the session: in the draft's caches, too, equal ids have equal rows. The text is the target's either way.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from time import perf_counter
from typing import Any

from specchat.engine.errors import EngineError
from specchat.engine.pictures.album import Album
from specchat.engine.pictures.rows import TakesRows
from specchat.engine.pictures.tower import Processed, Tower
from specchat.engine.protocol.options import Picture
from specchat.engine.protocol.stats import Stats
from specchat.engine.recipe import Rope
from specchat.engine.strategies import STRATEGIES


class DraftAlbum(Album):
    """The pictures that a draft model sees, with the ids that they have for its target.

    Attributes:
        took: for replies without and with a look (True) at their pictures, the seconds of looking and writing, and the
            tokens written.
    """

    def __init__(
        self, album: Album, open_tower: Callable[[], Tower], model: TakesRows, rope: Rope | None, mutual: int
    ) -> None:
        """`album` is the target's; else as `Album`."""
        super().__init__(open_tower, model, rope, {}, mutual)
        self._firsts, self._wanted = album._firsts, album._grids
        self.took = {False: (0.0, 0), True: (0.0, 0)}
        self._looks: dict[int, bool] = {}
        """True for pictures that are looked at, by first ids."""
        self._unfit = False
        """True once the tower could not be used."""
        self._reply: tuple[bool, float] | None = None
        """The reply begun last: True if all its pictures are looked at, False if none, and the seconds of that."""

    @property
    def choice(self) -> bool:
        """True if a new picture is looked at."""
        untried = [looks for looks, (_, tokens) in self.took.items() if not tokens]
        if untried:
            return untried[0]
        return min(self.took, key=lambda looks: self.took[looks][0] / self.took[looks][1])

    def look(self, pictures: Sequence[Picture], seen: list[Any], strategy: str = "") -> Generator[None, None, None]:
        """See `Blind`. What cannot be looked at is drafted without."""
        self._reply, spent, choice = None, 0.0, self.choice
        if self._unfit or not pictures or not (strategy == "auto" or STRATEGIES[strategy].needs_draft):
            return
        looks = {picture: self._looks.setdefault(self._firsts[picture.digest], choice) for picture in pictures}
        began = perf_counter()
        try:
            with closing(super().look([one for one, looked in looks.items() if looked], seen)) as parts:
                for _ in parts:
                    spent += perf_counter() - began
                    yield
                    began = perf_counter()
        except EngineError:
            self._unfit = True
            return
        if len(forms := {*looks.values()}) == 1:
            self._reply = forms.pop(), spent + perf_counter() - began

    def wrote(self, stats: Stats) -> None:
        if self._reply is not None:
            looked, spent = self._reply
            seconds, tokens = self.took[looked]
            self.took[looked] = seconds + spent + 1e-3 * stats.ran_ms, tokens + stats.completion_tokens
        self._reply = None

    def _prepared(self, picture: Picture) -> Processed:
        """Raises EngineError: the target's tower makes other rows of it, or there are too many to be read at once."""
        found, first = super()._prepared(picture), self._firsts[picture.digest]
        if found.grid != self._wanted[first] or 0 < self._mutual < found.grid.cells:
            raise EngineError("request", "The draft does not take the rows of a picture that the target has.")
        self._grids = dict(sorted({**self._grids, first: found.grid}.items()))
        return found

    def _first_of(self, token: int) -> int | None:
        """None, too, where a strategy that was changed to meets a picture that nobody looked at for this reply."""
        first = super()._first_of(token)
        return first if first in self._rows else None
