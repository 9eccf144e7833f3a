"""Refuses pairs that run on a server elsewhere: what loads a pair here has nothing of them."""

from collections.abc import Callable
from typing import NoReturn

from specchat.engine.errors import ModelError
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec


def load(pair: PairSpec, progress: Callable[[Loading], None], make_room: Callable[[], None]) -> NoReturn:  # noqa: ARG001
    """Refuse a pair.

    Raises:
        ModelError: always.
    """
    raise ModelError(f'Pair "{pair.id}" runs on a server ({pair.target.label}): chats use it, nothing else can.')
