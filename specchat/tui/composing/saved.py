"""Commands that bring saved prompts."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from specchat.config.errors import ConfigError
from specchat.config.saved_prompts import SavedPrompts, filled
from specchat.tui.action import Action


class Box(Protocol):
    """A prompt box."""

    def fill_in(self, text: str) -> None: ...


class HasPrompt(Protocol):
    """A window with a prompt box."""

    @property
    def prompt(self) -> Box: ...

    def say(self, message: str, *, bad: bool = False) -> None: ...


def saved_commands(prompts: SavedPrompts) -> dict[str, Action[Any]]:
    """An action for each saved prompt, by its name."""
    return {name: _action(name, prompts.read) for name in prompts.names()}


def _action(name: str, read: Callable[[str], str]) -> Action[Any]:
    help = "Put your saved prompt into the box."
    return Action(f"saved-{name}", name, help, partial(_bring, name, read), slash=name, argument="first blank")


def _bring(name: str, read: Callable[[str], str], window: HasPrompt, argument: str) -> None:
    """Put a saved prompt into the box; an argument goes into its first blank, or after it."""
    try:
        text = read(name)
    except ConfigError as error:
        window.say(error.message, bad=True)
        return
    window.prompt.fill_in(filled(text, argument))
