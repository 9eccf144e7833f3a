"""Choosing a pair; missing models are downloaded beside the chat, once the user agrees."""

import asyncio
from collections.abc import Awaitable, Sequence

from specchat.clean import one_line
from specchat.config.catalog import Catalog, Pair
from specchat.config.errors import ConfigError, UnknownPair
from specchat.tui.composing.slash import nearest
from specchat.tui.screens.chat import ChatScreen

LOOK_EVERY = 0.4
"""Seconds between looks at a download."""


def models(chat: ChatScreen, name: str) -> Awaitable[None] | None:
    """Use the pair or model of that name, or show all."""
    if name:
        return _use_named(chat, name)
    from specchat.tui.screens.models import ModelsScreen

    async def chosen(answer: Pair | str | None) -> None:
        if isinstance(answer, str):
            await chat.do(answer)
        elif answer is not None:
            want_pair(chat, answer)

    def changed(catalog: Catalog) -> None:
        chat.catalog = catalog

    chat.app.push_screen(ModelsScreen(chat.session, chat.catalog, changed), chosen)
    return None


async def _use_named(chat: ChatScreen, name: str) -> None:
    pair = await pair_named(chat, name)
    if isinstance(pair, str):
        chat.give_back(f"/model {name}", pair)
    else:
        want_pair(chat, pair)


async def pair_named(chat: ChatScreen, name: str) -> Pair | str:
    """The pair or model of that name, or why there is none. The disk is read in a thread."""
    try:
        return await asyncio.to_thread(chat.session.find, name, chat.catalog)
    except UnknownPair as error:
        near = nearest(name, error.known) or f"; {chat.keys.named('models')} shows all"
        return f"there is no pair {one_line(name, 40)}{near}"
    except ConfigError as error:
        return error.message


def model_values(chat: ChatScreen) -> Sequence[tuple[str, str]]:
    """The pairs whose models are here, once they were looked for, then the others."""
    fetching = chat.session.fetching
    if not fetching.listed and not fetching.looking:
        fetching.looking = True
        chat.run_worker(_look_here(chat), exit_on_error=False)
    here = {offer.pair.id: offer.pair.name for offer in fetching.listed if not offer.missing}
    return list((here | {pair.id: pair.name for pair in chat.catalog.pairs if pair.id not in here}).items())


async def _look_here(chat: ChatScreen) -> None:
    """List the models on this machine, and complete again what is typed."""
    _, chat.session.fetching.listed = await asyncio.to_thread(chat.session.look, chat.catalog)
    chat.complete_again()


def use_pair(chat: ChatScreen, pair: Pair) -> None:
    """Load another pair; the chat stays. One that cannot run here says why and changes nothing."""
    if pair.unsupported:
        chat.say(f"{one_line(pair.spec.name, 40)} cannot be loaded: {pair.unsupported}", bad=True)
        return
    stopped = chat.session.elsewhere
    chat.session.load(pair, chosen=True)
    words = f"the reply in “{one_line(stopped.title, 30)}” is stopped: its pair was unloaded" if stopped else ""
    chat.say(words)
    chat.redraw()
    chat.draw_chats()


def want_pair(chat: ChatScreen, pair: Pair) -> None:
    """Use a pair whose models are here; ask about a download where they are not."""
    fetching, name = chat.session.fetching, one_line(pair.spec.name, 40)
    sources = fetching.lacks(pair)
    if not sources or fetching.places is None:
        use_pair(chat, pair)
        return
    if fetching.busy:
        stop = f"{chat.keys.named('models')}, then ctrl+x, stops it"
        chat.say(f"{fetching}; {stop}; then {name} can be downloaded", bad=True)
        return
    from specchat.models.machine import missing_packages, unable
    from specchat.models.pull import Task
    from specchat.tui.screens.download import DownloadScreen

    task = Task(name, fetching.places().hub, sources, unable(pair.spec, missing_packages()))

    def answered(agreed: bool | None) -> None:
        if agreed:
            fetching.begin(task, pair)
            chat.run_worker(_follow(chat), group="download", exclusive=True)

    chat.app.push_screen(DownloadScreen(task), answered)


async def _follow(chat: ChatScreen) -> None:
    """Draw the download's progress, and use its pair once it is there and no reply runs."""
    fetching = chat.session.fetching
    while fetching.task is not None:
        await asyncio.sleep(LOOK_EVERY)
        if error := fetching.failed():
            chat.say(f"{error} {chat.keys.named('models')}, then ctrl+x, goes on with it.", bad=True)
        elif not chat.session.replies and not chat.session.racing.running and (pair := fetching.done()) is not None:
            use_pair(chat, pair)
        chat.draw_rows()
