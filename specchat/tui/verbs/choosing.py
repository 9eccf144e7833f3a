"""Choices in dialogs, which are imported when they are asked for, and what is done with what was chosen."""

from specchat.clean import one_line
from specchat.config.catalog import Catalog, Pair
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.text.chat_rows import Said
from specchat.tui.verbs.fetching import want_pair


def choose_settings(chat: ChatScreen) -> None:
    from specchat.tui.screens.settings import SettingsScreen

    def closed(wrong: str | None) -> None:
        if wrong:
            chat.say(wrong, bad=True)
        chat.composer.count_soon()
        chat.redraw()

    chat.app.push_screen(SettingsScreen(chat.session, chat.themes), closed)


def choose_pair(chat: ChatScreen) -> None:
    from specchat.tui.screens.models import ModelsScreen

    def chosen(pair: Pair | None) -> None:
        if pair is not None:
            want_pair(chat, pair, use_pair)

    def changed(catalog: Catalog) -> None:
        chat.catalog = catalog

    chat.app.push_screen(ModelsScreen(chat.session, chat.catalog, changed), chosen)


def use_pair(chat: ChatScreen, pair: Pair) -> None:
    """Load another pair; the chat stays. One that cannot run here says why and changes nothing."""
    if pair.unsupported:
        chat.say(f"{one_line(pair.spec.name, 40)} cannot be loaded: {pair.unsupported}", bad=True)
        return
    stopped = chat.session.elsewhere
    chat.session.load(pair)
    words = f"the reply in “{one_line(stopped.title, 30)}” is stopped: its pair was unloaded" if stopped else ""
    chat.say(words)
    chat.redraw()
    chat.draw_chats()


def use_strategy(chat: ChatScreen, name: str) -> None:
    """Draft differently from the next step on."""
    if refusal := chat.session.choose_strategy(name):
        chat.say(refusal, bad=True)
    chat.redraw()


def choose_earlier_prompt(chat: ChatScreen) -> None:
    from specchat.tui.screens.history import HistoryScreen

    def found(number: int | None) -> None:
        if number is not None:
            chat.prompt.fill(chat.history.go_to(number, chat.prompt.prompt))
        chat.set_focus(chat.prompt)

    chat.app.push_screen(HistoryScreen(chat.history), found)


def choose_message(chat: ChatScreen) -> None:
    from specchat.tui.screens.messages import MessagesScreen

    def chosen(said: Said | None) -> None:
        if said is not None:
            chat.reading.go_to(said)

    turns = chat.session.conversation.turns
    if not turns:
        chat.say("there are no messages yet", bad=True)
        return
    chat.app.push_screen(MessagesScreen(turns), chosen)
