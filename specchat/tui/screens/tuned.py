"""Tuned drafts: data, date, size and held-out figures of each; used, given up or deleted from here."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.config.errors import ConfigError
from specchat.models import words
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import named
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import FactRows
from specchat.tune.beside_work import TuningPlaces
from specchat.tune.registry import give_back, take_away, use, used_by
from specchat.tune.shelf import Tuned, figure, shelved

_NAMES = 19
_TAIL = 29
"""Cells of kind, date and size in a row."""
_ROOMY = 60
_NOTHING = "Nothing was tuned yet. /tune trains the draft on your chats."


class TunedScreen(Dialog[None]):
    """Changes models.toml and the shelf; `changed` gets the ids of the pairs that have other parts then."""

    CSS_PATH = "tools.tcss"
    DIALOG_TITLE = "tuned"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x,delete", "remove", "Delete", show=False)]

    def __init__(self, places: TuningPlaces, changed: Callable[[Sequence[str]], None]) -> None:
        super().__init__()
        self._places = places
        self._changed = changed
        self._rows: list[tuple[Tuned, list[str]]] | None = None
        """Each with the ids of the pairs that use it; None until they were read."""
        self._doomed = ""
        """The id of the one that the next press deletes."""
        self._problem = ""

    def compose_content(self) -> ComposeResult:
        yield Options(markup=False)
        with VerticalScroll(id="about"):
            yield FactRows()

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._read()

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self._draw)

    def _read(self) -> None:
        self.run_worker(self._look, thread=True, exit_on_error=False)

    def _look(self) -> None:
        """Read shelf and models.toml, in a thread of its own."""
        found = sorted(shelved(self._places.shelf), key=lambda one: -one.created)
        try:
            self._rows = [(one, used_by(one, self._places.toml)) for one in found]
        except ConfigError as error:
            self._rows, self._problem = [(one, []) for one in found], error.message
        self.app.call_from_thread(self._draw)

    # Drawing

    @property
    def _marked(self) -> tuple[Tuned, list[str]] | None:
        at, rows = self.query_one(OptionList).highlighted, self._rows or []
        return rows[at] if at is not None and at < len(rows) else None

    def _draw(self) -> None:
        if not self.query(Options):  # closed in the meantime
            return
        options = self.query_one(OptionList)
        at, rows = options.highlighted or 0, self._rows or []
        width = max(options.scrollable_content_region.width, 20)
        options.set_options([Option(self._row(one, bool(users), width)) for one, users in rows])
        options.highlighted = min(at, len(rows) - 1) if rows else None
        self._describe()

    def _row(self, one: Tuned, used: bool, width: int) -> Content:
        tail = f"{datetime.fromtimestamp(one.created):%Y-%m-%d %H:%M}  {words.size(one.size)}"
        room = width - _TAIL if width >= _ROOMY else width
        mark = " · in use" * used
        name = one_line(f"{one.id}, {one.kind} of {one.pair}", max(room - len(mark) - 1, 8))
        title = Content.styled(name, "bold") + Content.styled(mark, "$accent")
        return title + " " * max(room - title.cell_length, 0) + Content.styled(tail * (width >= _ROOMY), "$quiet")

    @on(OptionList.OptionHighlighted)
    def _describe(self) -> None:
        marked = self._marked
        self._doomed = self._doomed if marked is not None and marked[0].id == self._doomed else ""
        self.query_one(FactRows).show_rows(
            lambda width: [
                line for name, text in self._facts(marked) for line in named(name, text, width, _NAMES if name else 0)
            ]
        )
        self.show_hint(self._keys(marked))

    def _keys(self, marked: tuple[Tuned, list[str]] | None) -> str:
        if marked is None:
            return "esc closes"
        if self._doomed:
            return "x again deletes it · esc closes"
        return f"enter {'takes it out of use' if marked[1] else 'uses it'} · x deletes it · esc closes"

    def _facts(self, marked: tuple[Tuned, list[str]] | None) -> Iterator[tuple[str, str]]:
        """Rows of a name and words."""
        if self._problem:
            yield "problem", self._problem
        if marked is None:
            yield "", "Reading ..." if self._rows is None else _NOTHING
            return
        one, users = marked
        yield "learnt from", one.data
        yield "made", f"{datetime.fromtimestamp(one.created):%Y-%m-%d %H:%M}, {words.size(one.size)}"
        for name, value in one.after.items():
            if (before := one.before.get(name)) is not None:
                told = f"{figure(before)} before, {figure(value)} after, on held-out prompts"
                yield one_line(name.replace("_", " "), _NAMES - 1), told
        yield "used by", ", ".join(users) or "no pair"
        yield "lies in", str(one.folder)

    # What is done

    @on(OptionList.OptionSelected)
    def _chosen(self) -> None:
        if self._marked is not None:
            one, users = self._marked
            self._do(partial(give_back, one, self._places.toml) if users else partial(self._use, one))

    def action_remove(self) -> None:
        """Delete the marked one, the second time."""
        if self._marked is None:
            return
        one, _ = self._marked
        if self._doomed == one.id:
            self._do(lambda: take_away(one, self._places.shelf, self._places.toml)[1])
        else:
            self._doomed = one.id
            self._describe()

    def _use(self, one: Tuned) -> list[str]:
        use(one, self._places.toml)
        return [one.pair]

    def _do(self, change: Callable[[], list[str]]) -> None:
        """Change what is used, and show it; a failure is a sentence and changes nothing."""
        self._problem = self._doomed = ""
        try:
            pairs = change()
        except ConfigError as error:
            self._problem = error.message
        except OSError as error:
            self._problem = f"{error.filename or self._places.shelf} cannot be changed ({error.strerror})."
        else:
            self._changed(pairs)
        self._read()
