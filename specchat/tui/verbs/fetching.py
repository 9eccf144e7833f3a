"""Pairs whose models may have to be downloaded first: asked about, fetched beside the chat, then loaded."""

from collections.abc import Callable
from functools import partial

from specchat.clean import one_line
from specchat.config.catalog import Pair
from specchat.tui.screens.chat import ChatScreen

LOOK_EVERY = 0.4
"""Seconds between looks at a download."""
Use = Callable[[ChatScreen, Pair], None]


def want_pair(chat: ChatScreen, pair: Pair, use: Use) -> None:
    """`use` a pair whose models are here; ask about a download where they are not."""
    fetching, name = chat.session.fetching, one_line(pair.spec.name, 40)
    sources = fetching.lacks(pair)
    if not sources or fetching.places is None:
        use(chat, pair)
        return
    if fetching.busy:
        chat.say(f"{fetching}; F3, then x, stops it; then {name} can be downloaded", bad=True)
        return
    from specchat.models.machine import missing_packages, unable
    from specchat.models.pull import Task
    from specchat.tui.screens.download import DownloadScreen

    task = Task(name, fetching.places().hub, sources, unable(pair.spec, missing_packages()))

    def answered(agreed: bool | None) -> None:
        if agreed:
            fetching.begin(task, pair)
            _watch(chat, use)

    chat.app.push_screen(DownloadScreen(task), answered)


def _watch(chat: ChatScreen, use: Use) -> None:
    """Draw how far the download is, and use its pair once it is there and no reply runs."""
    if chat.fetch_timer is None:
        chat.fetch_timer = chat.set_interval(LOOK_EVERY, partial(_look_again, chat, use))


def _look_again(chat: ChatScreen, use: Use) -> None:
    fetching = chat.session.fetching
    if error := fetching.failed():
        chat.say(f"{error} F3, then x, goes on with it.", bad=True)
    elif not chat.session.replies and not chat.session.racing.running and (pair := fetching.done()) is not None:
        use(chat, pair)
    if fetching.task is None and chat.fetch_timer is not None:
        chat.fetch_timer.stop()
        chat.fetch_timer = None
    chat.draw_rows()
