"""Takes changed themes and pairs into the running app."""

from textual.app import App

from specchat.clean import clean
from specchat.config.live import LiveFiles
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.themes import textual_theme

LOOK_EVERY = 1.5
"""Seconds between looks at the files' times."""


def watch(chat: ChatScreen, files: LiveFiles) -> None:
    """Look at the files now and then from here on."""

    def look() -> None:
        if files.changed():
            reload(chat, files)

    chat.app.set_interval(LOOK_EVERY, look)


def reload(chat: ChatScreen, files: LiveFiles) -> None:
    """Take in what the files hold. The pair that is loaded stays as it is until it is chosen again."""
    app, fresh = chat.app, files.read()
    known = {theme.name: theme for theme in chat.themes}
    same = list(fresh.themes) == list(chat.themes) and fresh.catalog == chat.catalog
    for theme in fresh.themes:
        if known.get(theme.name) != theme:
            app.register_theme(textual_theme(theme))
            if app.theme == theme.name:
                app.mutate_reactive(App.theme)
    chat.themes = fresh.themes
    if fresh.catalog is not None:
        chat.catalog = fresh.catalog
    for problem in fresh.problems:
        app.notify(clean(problem), severity="warning", markup=False)
    if not fresh.problems and not same:
        chat.say("themes and models read again")
