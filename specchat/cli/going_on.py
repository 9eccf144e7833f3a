"""The saved chat that a command goes on with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
from click.core import ParameterSource

from specchat.chat.store import Store
from specchat.cli.chat_store import LAST, find_chat
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem
from specchat.cli.prepare import Prepared, prepare
from specchat.cli.wishes import Wishes
from specchat.config.errors import ConfigError
from specchat.service.chat_service import ChatService


@dataclass(frozen=True)
class GoingOn:
    """The chat `key`, None for a new one, and the wishes of the command line with the chat's pair."""

    key: str | None
    wishes: Wishes
    own_pair: bool = False
    """True if `wishes` name the chat's pair."""

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
        declared = pair_of_chat(row.view) if row is not None and wishes.pair is None and wishes.target is None else ""
        return cls(key, replace(wishes, pair=declared or wishes.pair), bool(declared))

    def open(self, service: ChatService) -> None:
        """Open the chat in `service`.

        Raises:
            Problem: it cannot be read.
        """
        if self.key is not None and (refusal := service.chats.open(self.key)):
            raise Problem(f"{refusal[0].upper()}{refusal[1:]}.", ExitCode.UNUSABLE)
        service.chat.scroll = {}  # the app shows its end

    def prepare(self) -> Prepared:
        """Apply the wishes.

        Raises:
            ConfigError: as `prepare.prepare`, or the chat's own pair is gone.
            click.UsageError: as `prepare.prepare`.
        """
        try:
            return prepare(self.wishes)
        except ConfigError as error:
            if not self.own_pair:
                raise
            words = f"This chat's pair cannot answer. {error.message} --pair or --target names another."
            raise ConfigError(words) from None


def pair_of_chat(view: Mapping[str, Any]) -> str:
    """The id of the pair that a chat was kept with; empty for none."""
    pair = view.get("pair")
    return pair if isinstance(pair, str) else ""
