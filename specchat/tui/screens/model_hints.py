"""Words about the keys of the list of models."""

from collections.abc import Iterator
from dataclasses import dataclass

from specchat.models.offers import Offer

Hint = tuple[str, str]
"""A hint, and the same in fewer cells; empty where it can be left out."""


@dataclass(frozen=True)
class ListState:
    """Uses of keys now, other than those that the marked offer tells.

    Attributes:
        loaded: the marked offer is the loaded pair.
        addable: it can be written into models.toml.
        fetching: a download runs (True), was stopped (False), or there is none.
        searchable: the typed words can be searched for.
        more: the facts go on below.
    """

    loaded: bool
    addable: bool
    fetching: bool | None
    searchable: bool
    more: bool


def hint_line(offer: Offer | None, now: ListState, room: int) -> str:
    """The hints that `room` cells have room for."""
    hints = list(_hints(offer, now))
    short = [few for _, few in hints if few]
    versions = [whole for whole, _ in hints], [whole for whole, few in hints if few], short, short[:-1]
    lines = [" · ".join(words) for words in versions]
    return next((line for line in lines if len(line) <= room), lines[-1])


def _hints(offer: Offer | None, now: ListState) -> Iterator[Hint]:
    if offer is not None:
        yield from _hints_of(offer, now)
    elif now.searchable:
        yield "enter searches the hub", "enter searches"
    if now.fetching is not None:
        words = "ctrl+x stops" if now.fetching else "ctrl+x goes on"
        yield words, words
    if offer is not None and now.searchable:
        yield "ctrl+f searches the hub", "ctrl+f hub"
    if now.more:
        yield "tab reads on", "tab more"
    yield "esc closes", "esc closes"


def _hints_of(offer: Offer, now: ListState) -> Iterator[Hint]:
    enter = "enter downloads" if offer.missing else "enter loads"
    yield enter, enter
    if offer.variants:
        yield "ctrl+o other download", "ctrl+o other"
    if offer.drafts.proposals:
        yield "ctrl+d with a draft", "ctrl+d drafts"
    if now.loaded:
        yield "ctrl+t tunes", "ctrl+t tunes"
        yield "ctrl+r measures", ""
    if now.addable:
        yield "ctrl+s saves to models.toml", "ctrl+s saves"
