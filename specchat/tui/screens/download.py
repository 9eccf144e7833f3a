"""Asks before a download: how much it is, where it goes, and what has to be known."""

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from specchat.models import words
from specchat.models.pull import Task
from specchat.tui.screens.beside_dialog import BesideDialog


class DownloadScreen(BesideDialog[bool]):
    """Gives True where the download is wanted."""

    DIALOG_TITLE = "download"
    EVERY_S = 0.1
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,y", "agree", "Download", show=False)]

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._pulling = task

    def sentences(self) -> Iterator[str]:
        task = self._pulling
        if task.order is not None:
            yield from words.order(task.order, task.lack)
        else:
            yield task.error or f"asking the hub about {task.name}"

    @property
    def _fits(self) -> bool:
        """True if it is known how much is to be fetched, and there is room for it."""
        order = self._pulling.order
        return order is not None and order.missing <= order.free

    @property
    def keys(self) -> str:
        if self._fits:
            return "enter downloads, then loads · "
        return "enter asks again · " if self._pulling.state == "failed" else ""

    def action_agree(self) -> None:
        """Download, or ask the hub again where it did not answer."""
        if self._fits:
            self.dismiss(True)
        elif self._pulling.state == "failed":
            self._pulling.ask_again()
