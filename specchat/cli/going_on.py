"""The saved chat that a command goes on with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
from click.core import ParameterSource

from specchat.chat.store import Store
from specchat.clean import one_line
from specchat.cli.chat_store import LAST, find_chat
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem
from specchat.cli.wishes import Wishes
from specchat.config.catalog import Pair, read_catalog, why_gone
from specchat.config.paths import user_paths
from specchat.config.settings import load_settings
from specchat.service.chat_service import ChatService


@dataclass(frozen=True)
class GoingOn:
    """The chat `key`, None for a new one, and the wishes of the command line with the chat's pair."""

    key: str | None
    wishes: Wishes
    gone: str = ""
    """The chat's pair, where that cannot be loaded any more."""

    @classmethod
    def of(cls, store: Store, wishes: Wishes, latest: bool, name: str | None) -> "GoingOn":
        """The `latest` chat or the one called `name`; a new one where neither is wanted.

        Raises:
            Problem: there is no such chat.
            click.UsageError: it would get another system prompt.
        """
        if not latest and name is None:
            return cls(None, wishes)
        if click.get_current_context().get_parameter_source("system") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--system cannot change a chat that goes on. Leave one of them out.")
        key = find_chat(store, name or LAST, scratch=True).key
        row = store.row(key)
        return _with_pair(key, wishes, row.view if row is not None else {})

    def open(self, service: ChatService) -> None:
        """Open the chat in `service`.

        Raises:
            Problem: it cannot be read.
        """
        if self.key is not None and (refusal := service.chats.open(self.key)):
            raise Problem(f"{refusal[0].upper()}{refusal[1:]}.", ExitCode.UNUSABLE)
        service.chat.scroll = {}  # the app shows its end

    def about(self, pair: Pair) -> str:
        """A sentence on the pair that is gone, and the one that answers; empty where none is gone."""
        if not self.gone:
            return ""
        why = f"This chat's pair {one_line(self.gone, 40)} is not loaded: {why_gone(self.gone)}."
        return f"{why} {one_line(pair.name, 40)} answers; --pair or --target names another."


def _with_pair(key: str, wishes: Wishes, view: Mapping[str, Any]) -> GoingOn:
    wanted = view.get("pair")
    if wishes.pair or wishes.target or not isinstance(wanted, str) or not wanted:
        return GoingOn(key, wishes)
    if any(wanted == pair.id for pair in read_catalog(user_paths(), wishes.models).pairs) or _found(wanted):
        return GoingOn(key, replace(wishes, pair=wanted))
    return GoingOn(key, wishes, wanted)


def _found(wanted: str) -> bool:
    """True if `wanted` is a model that was found on this machine."""
    from specchat.cli.prepare import found_here

    return found_here(wanted, load_settings(user_paths().settings_file)) is not None
