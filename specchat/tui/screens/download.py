"""Asks before a download: how much it is, where it goes, and what has to be known."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from specchat.clean import one_line
from specchat.models import words
from specchat.models.pull import Task
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import hang
from specchat.tui.widgets.plain import Plain

_EVERY_S = 0.1


class DownloadScreen(Dialog[bool]):
    """Gives True where the download is wanted."""

    DIALOG_TITLE = "download"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,y", "agree", "Download", show=False)]

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._pulling = task

    def compose_content(self) -> ComposeResult:
        yield Plain(id="order")

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._looked)
        self._looked()

    def on_resize(self) -> None:
        self._looked()

    def _looked(self) -> None:
        task = self._pulling
        sentences = [f"asking the hub about {task.name}"]
        if task.order is not None:
            sentences = words.order(task.order, task.lack)
        elif task.error:
            sentences = [task.error]
        self.show_hint(f"{self._keys}esc closes")
        box = self.query_one("#order", Plain)
        width = max(box.content_size.width, 20)
        lines = [
            line.content
            for text in sentences
            for line in hang(Content(one_line(text, 400)), width, Content(), Content())
        ]
        box.show(Content("\n").join(lines), layout=True)

    @property
    def _fits(self) -> bool:
        """True if it is known how much is to be fetched, and there is room for it."""
        order = self._pulling.order
        return order is not None and order.missing <= order.free

    @property
    def _keys(self) -> str:
        if self._fits:
            return "enter downloads, then loads · "
        return "enter asks again · " if self._pulling.state == "failed" else ""

    def action_agree(self) -> None:
        """Download, or ask the hub again where it did not answer."""
        if self._fits:
            self.dismiss(True)
        elif self._pulling.state == "failed":
            self._pulling.ask_again()
