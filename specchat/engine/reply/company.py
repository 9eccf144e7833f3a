"""Replies in company: up to four decode in one pass, each with copies of the caches."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, cast

import torch

from specchat.engine.decoding.by_copy import ModelByCopy
from specchat.engine.decoding.cached import CachedModel, HostModel, ReadsTextsApart
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.together import CommonPasses, Companion
from specchat.engine.model.cache_copy import CacheCopy, move
from specchat.engine.reply.pace import worthwhile
from specchat.engine.reply.reply import ReplyInProgress
from specchat.engine.runners.runner import Runner

AHEAD = 256
"""Tokens beyond its text for which a copy takes memory at a time."""


class Held(NamedTuple):
    """A copy of a model's cache; `cached` has the tokens that it holds, `source` is the model with its cache."""

    copy: CacheCopy
    cached: CachedModel[HostModel]
    source: CachedModel[ReadsTextsApart]


class Seat(NamedTuple):
    """A reply's part in common passes, its copies, and the tokens that they have memory for."""

    companion: Companion
    copies: dict[Role, Held]
    room: int = 0


class Company:
    """The replies that are being written, and those of them that decode in one pass."""

    def __init__(self, runner: Runner, lend: Callable[[int], bool]) -> None:
        """`lend` gives copies of the cache so many bytes more, or takes them back; False without room."""
        self._runner, self._of_memory, self._target = runner, lend, runner.target
        self._replies: list[ReplyInProgress] = []
        self._seats: dict[ReplyInProgress, Seat] = {}
        self.chosen: list[ReplyInProgress] = []
        """The replies that are to decode in one pass."""
        self._turn, self._turns = object(), 0
        """Whose turn it is, a reply's or the company's, and its number."""
        model = runner.target.model
        able = isinstance(model, ReadsTextsApart) and runner.target.shelf is not None
        self._passes = CommonPasses(cast(ReadsTextsApart, model), runner.executor.costs) if able else None
        models = {role: held.cached for role, held in self._copied().items()}
        self._strategies = runner.apart(models, runner.executor.costs).keys() if models else ()
        """Strategies that can draft in company."""

    def open(self, reply: ReplyInProgress) -> None:
        """Note that a reply is being written."""
        self._replies.append(reply)

    def close(self, reply: ReplyInProgress) -> None:
        """Note that it has ended."""
        self.leave(reply)
        self._replies.remove(reply)
        self.choose()

    def choose(self) -> None:
        """Choose which replies decode in one pass, by what was measured."""
        self.chosen = []
        if (passes := self._passes) is not None and len(self._replies) > 1:
            other, exact = self._runner.executor.costs.other_ms, [reply for reply in self._replies if reply.exact]
            for reply in exact:
                reply.pace.left = inf if reply.left is None else reply.left
                reply.pace.able = reply.speculation.strategy in self._strategies
            self.chosen = worthwhile(exact, lambda count: (passes.plain_ms(count) + count * other, passes.row_ms))

    def has(self, reply: ReplyInProgress) -> bool:
        """True if a reply goes on in company; one that is not chosen, or has no memory for its text, leaves it."""
        if (seat := self._seats.get(reply)) is None:
            return False
        if len(seat.companion.text) > seat.room:
            self._take_room(reply, seat)
        if reply in self.chosen:
            return True
        self.leave(reply)
        return False

    @torch.inference_mode()
    def join(self, reply: ReplyInProgress) -> bool:
        """Let a chosen reply, whose text the target's cache holds, go on in company; True if it does."""
        if reply not in self.chosen or reply in self._seats:
            return False
        decoding, passes = reply.decoding, self._passes
        assert decoding is not None
        assert passes is not None
        if not (copies := self._copied()):
            self._refuse(reply)
            return False
        models = {role: held.cached for role, held in copies.items()}
        companion = Companion(passes, copies["target"].copy, models, decoding.committed, reply.draft_ahead)
        if not self._take_room(reply, Seat(companion, copies)):
            return False
        for copy, cached, source in copies.values():
            move(source.model.entries(), source.tokens, copy.entries, cached.tokens)
        reply.joined, reply.compared = decoding.continued(companion, copies["target"].cached), False
        reply.drafters = self._runner.apart(models, companion.costs)
        for drafter in reply.drafters.values():
            drafter.begin(decoding.committed, reply.ends)
        reply.pace.together = True
        passes.companions.append(companion)
        return True

    def turned(self, reply: ReplyInProgress) -> bool:
        """Note that a reply goes on, alone or in company; True if others had their turn since it did."""
        turn = self if reply in self._seats else reply
        if turn is not self._turn:
            self._turn, self._turns = turn, self._turns + 1
        turned, reply.turn = reply.turn != self._turns, self._turns
        return turned

    def leave(self, reply: ReplyInProgress) -> None:
        """Let a reply go on alone; the shelf takes its text."""
        if (seat := self._seats.pop(reply, None)) is None or self._passes is None:
            return
        reply.joined, reply.drafters, reply.pace.together = None, self._runner.drafters, False
        self._passes.companions.remove(seat.companion)
        self._lend(seat, 0)
        for copy, cached, source in seat.copies.values():
            if source.shelf is not None:
                source.shelf.take(cached.tokens, copy.entries, reply.request.chat)

    def _copied(self) -> dict[Role, Held]:
        """Empty copies of the target's cache, and of the draft's where it has any; none without one of the target."""
        copies = dict[Role, Held]()
        for role in ("target", "draft"):
            source = self._runner.caches.get(role)
            copy = source.model.copied() if source is not None and isinstance(source.model, ReadsTextsApart) else None
            if source is not None and copy is not None:
                model = source.model if role == "target" else cast(HostModel, ModelByCopy(source.model, copy))
                copies[role] = Held(copy, CachedModel(model), source)
        return copies if "target" in copies else {}

    def _take_room(self, reply: ReplyInProgress, seat: Seat) -> bool:
        """Take memory for what a reply writes next; without any it has to go on alone."""
        room = min(len(seat.companion.text) + AHEAD, self._runner.context)
        if self._lend(seat, room):
            self._seats[reply] = seat._replace(room=room)
            return True
        self._refuse(reply)
        return False

    def _lend(self, seat: Seat, room: int) -> bool:
        """Let copies have memory for `room` tokens instead of as many as they have."""
        parts = [part for copy, *_ in seat.copies.values() for part in copy.entries.tensors]
        return self._of_memory((room - seat.room) * sum(part.nbytes // part.shape[1] for part in parts))

    def _refuse(self, reply: ReplyInProgress) -> None:
        reply.pace.refused = True
        self.choose()
