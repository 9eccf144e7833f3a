"""The welcome in an empty chat."""

from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message

from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.pair_info import PairInfo
from specchat.tui.composing.suggestions import SUGGESTIONS
from specchat.tui.keys import Keys
from specchat.tui.text.lines import EMPTY, styled, tagged
from specchat.tui.widgets.plain import Plain

_BUILT_IN = "The built-in demo model is tiny, for trying the app."
_CHOOSE = "Press ↓ for an example, or type your question. Enter sends it."
_MEANWHILE = "You can send it now. The answer comes as soon as the model is ready."
_WATCH = "A small helper guesses the next words and the model checks them. The panel shows the time saved."
_WATCH_SERVER = "The panel shows the server's speed, and what its drafts bring where it tells that."


class Welcome(Plain):
    """The loaded pair, what to ask it, and what to look at; as much as there is room for."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"name", "quiet", "value", "accent"}

    @dataclass
    class Picked(Message):
        """The suggested prompt `words` was clicked."""

        words: str

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._choose = keys.named("models")
        self._pair: tuple[Content, ...] = ()
        self._loading = False
        self._watch = _WATCH

    def show_pair(self, info: PairInfo | None, name: str, error: str, *, built_in: bool, again: bool) -> None:
        """Show the pair that is loaded or being loaded.

        `error` is why it is not loaded; `built_in` marks the pair that comes with specchat, `again` the one of the
        start before.
        """
        self._loading = info is None and not error
        self._watch = _WATCH_SERVER if info is not None and info.server.name else _WATCH
        about = f"on {one_line(info.load.device)}" if info is not None else ""
        if again:
            about = f"Chosen last time{f', runs {about}' if about else ''}. {self._choose} chooses another."
        about = error or (f"{_BUILT_IN} {self._choose} gets a real one." if built_in else about)
        self._pair = (styled(one_line(name), ".value"), styled(about, ".quiet"))
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def on_click(self, event: events.Click) -> None:
        if words := event.style.meta.get("ask"):
            self.post_message(self.Picked(words))

    def _fill(self) -> None:
        width, height = self.content_size
        if not width:  # not laid out yet
            return
        longest = max(map(len, SUGGESTIONS))
        asks = [
            tagged((styled("· ", ".accent") + words.ljust(longest)).truncate(width, ellipsis=True), ask=words)
            for words in SUGGESTIONS
        ]
        choose = [styled(_CHOOSE, ".accent"), *([styled(_MEANWHILE, ".quiet")] if self._loading else [])]
        parts = [[styled("specchat", ".name")], list(self._pair), asks, choose]
        parts.append([styled(self._watch, ".quiet")])
        rows = [[line for row in part if row for line in row.wrap(width)] for part in parts]
        for least in (4, 0):  # the last and then the first part go where there is no room
            if sum(map(len, rows)) > height:
                del rows[least]
        apart = sum(map(len, rows)) + len(rows) - 1 <= height
        self.show(
            Content("\n").join(line for n, part in enumerate(rows) for line in ([EMPTY] * (apart and n > 0)) + part)
        )
