"""Takes changed themes and pairs into the running app."""

from typing import TYPE_CHECKING

from specchat.clean import clean
from specchat.tui.launch import LiveFiles
from specchat.tui.themes import textual_theme

if TYPE_CHECKING:
    from specchat.tui.app import SpecchatApp

LOOK_EVERY = 1.5
"""Seconds between looks at the files' times."""


def watch(app: "SpecchatApp", files: LiveFiles) -> None:
    """Look at the files now and then from here on."""

    def look() -> None:
        if files.changed():
            reload(app, files)

    app.set_interval(LOOK_EVERY, look)


def reload(app: "SpecchatApp", files: LiveFiles) -> None:
    """Take in what the files hold. The pair that is loaded stays as it is until it is chosen again."""
    fresh = files.read()
    known = {theme.name: theme for theme in app.chat.themes}
    for theme in fresh.themes:
        if known.get(theme.name) != theme:
            app.register_theme(textual_theme(theme))
            if app.theme == theme.name:
                app.mutate_reactive(type(app).theme)
    app.chat.themes = fresh.themes
    if fresh.catalog is not None:
        app.catalog = fresh.catalog
        app.chat.catalog = fresh.catalog
    for problem in fresh.problems:
        app.notify(clean(problem), severity="warning", markup=False)
    if not fresh.problems:
        app.chat.say("themes and models read again")
