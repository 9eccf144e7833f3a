"""Whose text the models of a pair hold: one reply's, or that of replies in company. Each goes on where it left off."""

from collections.abc import Callable, Collection, Sequence
from time import perf_counter

from specchat.engine.reply.company import Company
from specchat.engine.reply.reply import ReplyInProgress
from specchat.engine.runners.runner import Runner


class Holder:
    """Has the models hold the text of the reply whose turn it is."""

    def __init__(self, runner: Runner, lend: Callable[[int], bool], turn_to: Callable[[ReplyInProgress], None]) -> None:
        """`lend` is `Company`'s; `turn_to` has all that stands around the models turn to a reply."""
        self._runner, self._turn_to = runner, turn_to
        self.company = Company(runner, lend)
        self.reply: ReplyInProgress | None = None
        """The reply whose text the models hold."""
        self.back_s = 0.0
        """Seconds that the models took for the text of the last reply that went on."""

    @property
    def together(self) -> Collection[int]:
        """Ids of the replies that decode in one pass."""
        return [reply.request.id for reply in self.company.chosen]

    def hold(self, reply: ReplyInProgress) -> None:
        """Let the models hold a reply's text from here on."""
        if self.reply is not None and self.reply.progress.decoding is not None:
            self.reply.progress.decoding.close()
        self.reply = reply
        self.company.turned(reply)
        self._turn_to(reply)

    def begin_drafts(self, reply: ReplyInProgress, text: Sequence[int]) -> None:
        """Let every drafter begin a reply after `text`."""
        for drafter in self._runner.drafters.values():
            drafter.begin(text, reply.rules.ends)

    def go_on(self, reply: ReplyInProgress, text: Sequence[int], read: Callable[[], object]) -> bool:
        """Have the models hold a reply's `text`, which `read` has the target do; True if another had its turn."""
        turned, self.back_s = self.company.turned(reply), 0.0
        if self.reply is reply:
            if turned:
                self._runner.executor.costs.begin()
            return turned
        began = perf_counter()
        self.hold(reply)
        self.begin_drafts(reply, text)
        read()
        self.back_s = perf_counter() - began
        return True

    def again(self, reply: ReplyInProgress, begin: Callable[[], None]) -> bool:
        """Let a reply go on with its next step, alone or in company; True if others had their turn since its last one.

        `begin` is called where it goes on alone after others.
        """
        self.company.choose()
        self._join()
        if self.company.has(reply):
            self.back_s = 0.0
            return self.company.turned(reply)
        decoding = reply.progress.decoding
        assert decoding is not None
        if turned := self.go_on(reply, decoding.committed, decoding.resume):
            begin()
        self._join()
        return turned

    def _join(self) -> None:
        """Let the reply whose text the models hold go on in company, if it is to."""
        if self.reply is not None and self.company.join(self.reply):
            self.reply = None
