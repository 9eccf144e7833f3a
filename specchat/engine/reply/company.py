"""Replies in company: up to four decode in one pass, each by plain steps and with a copy of the target's cache."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from specchat.engine.decoding.together import Companion
from specchat.engine.model.cache_copy import move
from specchat.engine.reply.pace import worthwhile
from specchat.engine.reply.reply import ReplyInProgress
from specchat.engine.runners.runner import Runner

AHEAD = 256
"""Tokens beyond its text for which a copy takes memory at a time."""


class Seat(NamedTuple):
    """A reply's part in common passes, and the tokens that its copy has memory for."""

    companion: Companion
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
        self._passes = runner.passes if runner.target.shelf is not None else None

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
            costs = self._runner.executor.costs
            table, other = costs.verify_ms(), costs.other_ms
            self.chosen = worthwhile(
                [reply for reply in self._replies if reply.exact],
                lambda count: (passes.known_ms(count) or table[count]) + count * other,
            )

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
        decoding, passes = reply.progress.decoding, self._passes
        assert decoding is not None
        assert passes is not None
        if (copy := passes.model.copied([one.copy for one in passes.companions])) is None:
            self._refuse(reply)
            return False
        decoding.close()
        usual = self._runner.executor_of(reply.rules.constraint, reply.request.logprobs) is self._runner.executor
        kind = passes.kind if usual else Companion
        companion = kind(passes, copy, decoding.committed, lambda: reply.progress.ended)
        if not self._take_room(reply, Seat(companion)):
            return False
        move(passes.model.entries(), decoding.committed[:-1], copy.entries, companion.cached.tokens)
        copy.resume(passes.model.tail(len(companion.cached.tokens)))
        reply.progress.joined, reply.progress.compared = decoding.continued(companion, companion.cached), False
        reply.pace.together = True
        passes.companions.append(companion)
        return True

    def turned(self, reply: ReplyInProgress) -> bool:
        """Note that a reply goes on, alone or in company; True if others had their turn since it did."""
        turn = self if reply in self._seats else reply
        if turn is not self._turn:
            self._turn, self._turns = turn, self._turns + 1
        progress = reply.progress
        turned, progress.turn = progress.turn != self._turns, self._turns
        return turned

    def leave(self, reply: ReplyInProgress) -> None:
        """Let a reply go on alone; the shelf takes its text."""
        if (seat := self._seats.pop(reply, None)) is None or self._passes is None:
            return
        companion, reply.progress.joined, reply.pace.together = seat.companion, None, False
        self._passes.companions.remove(companion)
        self._lend(companion, seat.room, 0)
        if self._target.shelf is not None:
            self._target.shelf.take(companion.cached.tokens, companion.copy, reply.request.chat)

    def _take_room(self, reply: ReplyInProgress, seat: Seat) -> bool:
        """Take memory for what a reply writes next; without any it has to go on alone."""
        companion = seat.companion
        room = min(len(companion.text) + AHEAD, self._runner.context)
        if self._lend(companion, seat.room, room):
            self._seats[reply] = seat._replace(room=room)
            return True
        self._refuse(reply)
        return False

    def _lend(self, companion: Companion, room: int, more: int) -> bool:
        """Let a copy have memory for `more` tokens instead of for `room`."""
        return self._of_memory((more - room) * companion.copy.of_token)

    def _refuse(self, reply: ReplyInProgress) -> None:
        reply.pace.refused = True
        self.choose()
