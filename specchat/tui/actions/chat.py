"""Replies, drafting, models and the app itself."""

from specchat.clean import one_line
from specchat.engine.strategies import STRATEGIES
from specchat.tui.action import Action
from specchat.tui.actions.models import model_values, models
from specchat.tui.actions.reading import copy_reply
from specchat.tui.actions.speculation import use_strategy
from specchat.tui.composing.slash import nearest
from specchat.tui.screens.chat import ChatScreen


def choose_settings(chat: ChatScreen) -> None:
    from specchat.tui.screens.settings import SettingsScreen

    def closed(wrong: str | None) -> None:
        if wrong:
            chat.say(wrong, bad=True)
        chat.composer.count_soon()
        chat.redraw()

    chat.app.push_screen(SettingsScreen(chat.session, chat.themes), closed)


def _strategy(chat: ChatScreen, argument: str) -> None:
    if argument in STRATEGIES:
        use_strategy(chat, argument)
    elif argument:
        words = f"there is no strategy {one_line(argument, 40)}{nearest(argument, STRATEGIES)}"
        chat.give_back(f"/strategy {argument}", words)
    else:
        choose_settings(chat)


def _about(chat: ChatScreen, _: str) -> None:
    from specchat.models.sampling import described
    from specchat.tui.screens.about import AboutScreen

    loaded, choose = chat.session.loaded, chat.keys.named("models")
    loading = loaded.name if loaded.loading is not None else ""
    chat.app.push_screen(AboutScreen(loaded.info, loading, choose, described(loaded.pair) if loaded.pair else ""))


def _help(chat: ChatScreen, _: str) -> None:
    from specchat.tui.screens.help import HelpScreen

    chat.app.push_screen(HelpScreen(chat.keys, chat.place))


CHAT: tuple[Action[ChatScreen], ...] = (
    Action("send", "Send", "Send the prompt; while a reply is written, once that has ended.", keys=("enter",),
           where="prompt", fixed=True),
    Action("newline", "New line", "Start a new line in the prompt.", lambda chat, _: chat.prompt.action_newline(),
           ("ctrl+j", "alt+enter", "shift+enter"), hint="new line", where="prompt", when="typed", fixed=True),
    Action("kill", "Kill and yank", "Take away the rest of the line, the line before the cursor or the word before it; "
           "put that back.", keys=("ctrl+k", "ctrl+u", "ctrl+w", "ctrl+y"), where="prompt", fixed=True),
    Action("stop", "Stop", "Stop the reply and keep its text. Press twice if it hangs.",
           lambda chat, _: chat.stop(), ("escape",), hint="stop", hint_editing="give up editing", slash="stop",
           when="stoppable"),
    Action("help", "Help", "All keys and what they do.", _help, ("f1",), hint="help", slash="help"),
    Action("quit", "Quit", "Leave specchat.", lambda chat, _: chat.app.action_quit(), ("ctrl+q",), hint="quit",
           slash="quit"),
    Action("about", "About", "What is loaded, on which hardware, and why the text is exact.", _about, slash="about"),
    Action("interrupt", "Interrupt", "Copy what is selected, else stop the reply, else clear the prompt, else say how "
           "to leave; twice within a second leaves.", keys=("ctrl+c",), fixed=True),
    Action("suspend", "Suspend", "Suspend; fg returns. Undo where the terminal cannot suspend.",
           lambda chat, _: chat.app.action_suspend_process(), ("ctrl+z",)),
    Action("settings", "Settings", "Strategy, draft length, sampling, seed and theme.",
           lambda chat, _: choose_settings(chat), ("ctrl+o", "f2"), hint="settings", slash="settings"),
    Action("token-view", "Token view", "Colour the reply by where each token came from.",
           lambda chat, _: chat.reading.toggle_token_view(), ("ctrl+t",), hint="tokens", slash="tokens",
           when="recorded"),
    Action("panel", "Panel", "Hide or show the engine panel.", lambda chat, _: chat.toggle_panel(), ("alt+p",),
           slash="panel"),
    Action("commands", "Commands", "Search all commands.", lambda chat, _: chat.app.action_command_palette(),
           ("alt+x",), hint="commands", slash="commands"),
    Action("models", "Models", "Choose, download and look at models.", models, ("f3",), hint="models", slash="model",
           argument="pair", values=model_values),
    Action("strategy", "Strategy", "Draft in another way from the next step on.", _strategy, slash="strategy",
           argument="name", values=lambda _: [(known.name, known.summary) for known in STRATEGIES.values()]),
    Action("continue", "Continue", "Go on with a reply that was stopped or cut off, as a version.",
           lambda chat, _: chat.chats.go_on(), slash="continue"),
    Action("copy-reply", "Copy reply", "Copy the last reply's text.", lambda chat, _: copy_reply(chat), ("alt+c",),
           slash="copy"),
    Action("history", "Prompt history", "Earlier prompts, at the prompt's first and last row; in an empty chat "
           "down gives examples.", keys=("up", "down", "ctrl+p", "ctrl+n"), where="prompt", fixed=True),
    Action("scroll", "Scroll", "Move through the chat.", keys=("pageup", "pagedown"), fixed=True),
    Action("follow", "Follow", "Jump to the end of the chat and stay there.", lambda chat, _: chat.transcript.follow(),
           ("ctrl+end",), hint="reply below", when="below"),
)  # fmt: skip
