"""Which model of those that `auto` has promises most, by what steps cost and what its drafts brought.

What a model promises is thought over after so many of its drafts, or steps of any kind; until then it holds. A reply
that begins with a prompt which a model has not read pays for that reading, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.pace import Average, promise
from specchat.engine.drafters.model_record import ModelRecord, Outlook

MARGIN = 1.08
"""A model is taken where it promises so much more than plain, and left where it promises less; a copy takes its place
where that promises so much more: of two the one that is overrated is taken too often."""
KNOWN, MARGIN_KNOWN = 32, 1.03
"""Drafts by which a model is known, and what it must promise then."""
LENGTH = 64.0
"""Tokens of a reply, before any was written."""


class Promises:
    """Of `models` by name: a tree beside the chain that the same model drafts."""

    def __init__(self, models: Mapping[str, ModelRecord], costs: StepCosts) -> None:
        self._models = models
        self._costs = costs
        self._length = Average(Average(LENGTH))
        """Tokens of replies, in this chat and in others."""
        self._first: dict[int, list[tuple[float, str]]] = {}
        """The `_ranks` of kinds of text in which no draft of this text was judged."""
        self.forget()
        self.look()

    def forget(self) -> None:
        """Know of no text in particular."""
        self._length.forget()
        self._chosen: dict[int, tuple[str, float]] = {}
        """What `most` found, by kind of text, until any model is thought over."""
        self._taken: dict[int, str] = {}
        """The model that promised most when that was found out last, by kind of text."""
        self._ranks: dict[int, list[tuple[float, str]]] = {}
        """Times plain's that models promise, the most first, by kind of text, until any is thought over."""
        self._judged: set[int] = set()
        """Kinds of text in which a draft was judged."""

    def begin(self, written: int) -> None:
        """A reply begins with another prompt to read; the one before it had so many tokens, 0 where there was none."""
        if written:
            self._length.add(written)
        self._chosen.clear()

    def judged(self, of: int) -> None:
        """A draft was judged in a text of kind `of`."""
        self._judged.add(of)

    def read(self) -> None:
        """A model has read what it had to."""
        self._chosen.clear()

    def look(self) -> None:
        """Take what steps cost now."""
        self.checks = self._costs.checks()
        """Milliseconds of checking 0, 1, ... rows."""
        self.plain = 1 / (self.checks[1] + self._costs.other_ms)
        """Tokens a millisecond of plain decoding."""

    def rethink(self, models: Iterable[ModelRecord]) -> None:
        """Work out anew what these promise in this text."""
        self._chosen.clear()
        self._ranks.clear()
        for model in models:
            model.rethink()

    def rethink_all(self) -> None:
        """Work out anew what all promise in any text."""
        self.rethink(self._models.values())
        self._first.clear()

    def most(self, of: int, text: Sequence[int], reads: str = "") -> tuple[str, float]:
        """The model that promises most in a `text` of kind `of`, and tokens a millisecond; "" is plain decoding.

        The one named `reads` is about to read the text: that costs no more.
        """
        if of not in self._chosen:
            self._chosen[of] = self._most(of, text, reads)
        name, times = self._chosen[of]
        return name, times * self.plain

    def worth_reading(self, name: str, of: int, prompt: Sequence[int]) -> bool:
        """Whether no model promises more in a reply that begins with `prompt`, so far as is known.

        It may read that beside the target.
        """
        times = {
            one: self._with_reading(self._models[one], promised, prompt)
            for promised, one in self.ranked(of)
            if promised > 1 and self._models[one].chain is None
        }
        return name in times and times[name] >= max(1.0, *times.values())

    def outlook(self, name: str, of: int) -> Outlook:
        """What a model's drafts promise in a text of kind `of`, of which it has read all."""

        def times(accepted: float, drafted: float) -> float:
            costs = self._costs
            draft_ms = costs.drafting(name, drafted)
            return promise(accepted, drafted, draft_ms, self.checks, costs.other_ms) / self.plain

        return self._models[name].outlook(of, times)

    def _most(self, of: int, text: Sequence[int], reads: str) -> tuple[str, float]:
        """What `most` gives, by times plain's."""
        chosen, most, before = "", 1.0, self._taken.get(of)
        for times, name in self.ranked(of):
            if times <= most:
                break
            model = self._models[name]
            if reads != model.reads.name:
                times = self._with_reading(model, times, text)
            margin = MARGIN if model.known < KNOWN else MARGIN_KNOWN
            if times > (most if name == before else max(most, margin)):
                chosen, most = name, times
        self._taken[of] = chosen
        return chosen, most

    def ranked(self, of: int) -> list[tuple[float, str]]:
        """Times plain's that models promise in a text of kind `of` which they have read, the most first."""
        known = self._ranks if of in self._judged else self._first
        if of not in known:
            known[of] = sorted(
                (
                    (self.outlook(name, of).times, name)
                    for name, model in self._models.items()
                    if model.chain is None or self._costs.draft(name)  # a tree must be tried first
                ),
                key=itemgetter(0),
                reverse=True,
            )
        return known[of]

    def _with_reading(self, model: ModelRecord, times: float, text: Sequence[int]) -> float:
        """`times` less what the model must read of a `text` first, paid out of all that is still to be written."""
        left, reading = self._length.value, model.reads.behind(text) * self.plain
        return left * times / (left + reading * times)
