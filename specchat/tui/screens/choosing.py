"""Choices in dialogs and by commands: settings, pair, strategy, an earlier prompt."""

from typing import TYPE_CHECKING

from specchat.clean import one_line
from specchat.tui.launch import Pair

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


class Choosing:
    """The chat screen's part that opens dialogs. They are imported when they are asked for."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat

    def settings(self) -> None:
        from specchat.tui.screens.settings import SettingsScreen

        chat = self._chat
        chat.app.push_screen(SettingsScreen(chat.session, chat.themes), lambda _: chat.redraw())

    def pairs(self) -> None:
        from specchat.tui.screens.pairs import PairsScreen

        chat = self._chat
        chat.app.push_screen(PairsScreen(chat.session, chat.catalog), self._pair_chosen)

    def _pair_chosen(self, chosen: Pair | None) -> None:
        if chosen is not None:
            self.pair(chosen)

    def pair(self, pair: Pair) -> None:
        """Load another pair; the chat stays. One that cannot run here says why and changes nothing."""
        chat = self._chat
        if pair.unsupported:
            chat.say(f"{one_line(pair.spec.name, 40)} cannot be loaded: {pair.unsupported}", bad=True)
            return
        stopped = chat.session.elsewhere
        chat.session.load(pair)
        words = f"the reply in “{one_line(stopped.title, 30)}” is stopped: its pair was unloaded" if stopped else ""
        chat.say(words)
        chat.redraw()
        chat.chats.redraw()
        chat.feed.expect()

    def strategy(self, name: str) -> None:
        """Draft differently from the next step on."""
        if refusal := self._chat.session.choose_strategy(name):
            self._chat.say(refusal, bad=True)
        self._chat.redraw()

    def earlier_prompt(self) -> None:
        from specchat.tui.screens.history import HistoryScreen

        self._chat.app.push_screen(HistoryScreen(self._chat.history), self._prompt_found)

    def _prompt_found(self, number: int | None) -> None:
        prompt = self._chat.prompt
        if number is not None:
            prompt.fill(self._chat.history.go_to(number, prompt.prompt))
        self._chat.set_focus(prompt)

    def about(self) -> None:
        from specchat.tui.screens.about import AboutScreen

        self._chat.app.push_screen(AboutScreen(self._chat.session.loaded.info))

    def help(self) -> None:
        from specchat.tui.screens.help import HelpScreen

        self._chat.app.push_screen(HelpScreen(self._chat.keys, self._chat.place))
