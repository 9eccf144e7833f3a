"""Whichever family promises the most tokens a second, step by step.

What copies from earlier text is asked at every step, for that costs next to nothing: one after the other, until one
has found what follows a long match; the longest counts. That is weighed against a draft by a model, and whether it
would have been right is seen also where it was not taken. A model's draft must be made to be known: where it does not
pay it is tried now and then, at a small share of the time.

A model's draft may end with a copy (`copy_on.py`): what repeats often begins with tokens that nothing can be copied
after.

Texts are told apart by how much of their end occurred before: models and copies do otherwise where a text repeats
itself than where it is new. What is new is prose or code.
"""

from collections.abc import Sequence
from dataclasses import replace

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Drafts, ModelDrafter
from specchat.engine.decoding.pace import Average, Copies, by_kind, promise
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.copy_on import After, CopyOn
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.guess import Copier, Guess
from specchat.engine.drafters.occurrences import KEY

REVIEW = 8
"""Steps between two looks at what checks cost."""
MARGIN = 1.08
"""A model is taken where it promises so much more than plain; it is left where it promises less."""
TRIED = 1
"""Tokens of a trial's draft."""
TRIAL_SHARE = 0.018
"""What trials may lose, as a share of the time."""
SOONEST, LATEST = 8, 64
"""Steps that each trial of a model is waited for."""
ACCEPTED, DRAFTED = 4.0, 5.0
"""Tokens of a model's draft that stay, and all of them, before any was judged."""
FIRST = (0.4, 0.4, 0.7, 0.9, 0.95)
LATER = (0.8, 0.8, 0.85, 0.95, 0.97)
"""Shares of copies assumed to stay, by kind of text: of their first tokens, and of each that follows one that stays."""
LENGTH = 64.0
"""Tokens of a reply, before any was written."""
LONG = 8
"""After so many tokens alike no other copy is looked for."""
ALIKE, NEW = len(FIRST), 2
"""Kinds of text: its end did not occur before, 2 or 3 tokens did, 4 to 7, 8 to 15, more; the first two are new."""
KINDS = ALIKE + NEW
"""With those of new code."""


def kind(matched: int, code: bool = False) -> int:
    """The kind of a text whose last `matched` tokens occurred before."""
    alike = 0 if matched < KEY else min(matched.bit_length() - 1, ALIKE - 1)
    return ALIKE + alike if code and alike < NEW else alike


def by_length() -> list[Copies]:
    """What copies bring, by kind of text."""
    return [Copies(*assumed) for assumed in zip(FIRST + FIRST[:NEW], LATER + LATER[:NEW], strict=True)]


class _Model:
    """A family that runs a model: what its drafts bring, and when it is tried."""

    def __init__(self, drafter: ModelDrafter) -> None:
        self.drafter = drafter
        self.accepted, self.drafted = by_kind(ACCEPTED, KINDS), by_kind(DRAFTED, KINDS)
        self.forget()

    def forget(self) -> None:
        for average in (*self.accepted, *self.drafted):
            average.forget()
        self.taken = [False] * KINDS
        """Whether it drafts, by kind of text."""
        self.idle = 0
        """Steps since it drafted."""
        self.again = False
        """Whether its last trial kept all it drafted: then a whole draft follows at once."""


class AutoDrafter:
    """Drafts by other drafters, each of which is begun and told to forget by whoever has them all."""

    name = "auto"

    def __init__(
        self,
        drafts: Drafts,
        copiers: Sequence[Copier],
        after: After,
        models: Sequence[ModelDrafter],
        costs: StepCosts,
        fences: Fences,
    ) -> None:
        """`copiers` are asked in this order, `after` while one of the `models` drafts a chain; `costs` are told of each
        step, and `fences` tell prose from code."""
        self._drafts = drafts
        self._fences = fences
        self._copiers = copiers
        self._models = {drafter.name: _Model(drafter) for drafter in models}
        self._copies = {copier.name: by_length() for copier in copiers}
        self._added = by_length()
        """The same of copies after a model's tokens."""
        self._copy_on = CopyOn(after, lambda matched: self._added[kind(matched, fences.code)])
        self._costs = costs
        self._length = Average(Average(LENGTH))
        """Tokens of replies, in this chat and in others."""
        self._written = 0
        self.begin([])
        self.forget()

    @property
    def ahead(self) -> bool:
        return all(model.drafter.ahead for model in self._models.values())

    def begin(self, prompt: Sequence[int]) -> None:
        self._fences.begin()
        if self._written:
            self._length.add(self._written)
        self._written = 0
        self._due = self._longest = 0
        """Steps until the next look at costs, and tokens that a draft of this reply may have far from its end."""

    def forget(self) -> None:
        """What steps cost and what drafts bring in general is kept: it belongs to machine and pair, not to a text."""
        for model in self._models.values():
            model.forget()
        for families in (*self._copies.values(), self._added):
            for family in families:
                family.forget()
        self._length.forget()
        self._drafted, self._limit, self._trial, self._joint = "plain", 0, False, False
        self._guess, self._copied, self._kind = Guess(), "", 0

    def propose(self, text: Sequence[int], limit: int) -> str:
        if self._due <= 0:
            self._look()
        self._drafted, self._limit, self._trial, self._joint = "plain", 0, False, False
        self._guess, self._copied, self._kind = Guess(), "", kind(0, self._fences.code)
        if not limit:
            return "plain"
        self._longest = max(self._longest, limit)
        for copier in self._copiers:
            guess = copier.guess(text, limit)
            if guess.tokens and guess.matched >= self._guess.matched:
                self._guess, self._copied, self._kind = guess, copier.name, kind(guess.matched, self._fences.code)
            if guess.matched >= LONG:
                break
        best = self._choose_model(text, limit)
        copies = False
        if self._copied:
            found, length = self._copies[self._copied][self._kind].best(
                len(self._guess.tokens), self._checks, self._costs.other.value
            )
            if found > best:
                best, copies = found, True
                self._drafted, self._limit = self._copied, length
        if self._try(text, limit, best):
            copies = False
        if copies:
            self._guess.fill(self._drafts, self._limit)
            return self._drafted
        return self._draft(text, best) if self._limit else "plain"

    def _draft(self, text: Sequence[int], best: float) -> str:
        """Let the model draft, and copy where that pays more than its next token."""
        model = self._models[self._drafted]
        self._joint = not self._trial and self._limit > 1
        if self._joint:
            accepted, drafted = model.accepted[self._kind].value, model.drafted[self._kind].value
            # As if all places had that chance: the one in the middle keeps the share that is kept of all.
            goes_on = min(1.0, accepted / max(drafted, 1.0)) ** (2 / (1 + drafted))
            self._copy_on.start(text, self._limit, best, goes_on, self._checks, self._costs.draft(self._drafted))
            self._drafts.follow(self._copy_on.copy)
        family = model.drafter.propose(text, self._limit)
        return self.name if self._joint and self._copy_on.taken else family

    def _choose_model(self, text: Sequence[int], limit: int) -> float:
        """Take the model that promises most, or none; returns the promise."""
        best = self._plain
        for name, model in self._models.items():
            # What it must read first is paid once, for all that is still to be written.
            left = self._length.value
            promised = left / (left / self._promise(name, model) + model.drafter.behind(text))
            model.taken[self._kind] = promised > self._plain * (1 if model.taken[self._kind] else MARGIN)
            if model.taken[self._kind] and promised > best:
                best, self._drafted, self._limit = promised, name, limit
        return best

    def _promise(self, name: str, model: _Model) -> float:
        accepted, drafted = model.accepted[self._kind].value, model.drafted[self._kind].value
        return promise(accepted, drafted, self._costs.draft(name), self._checks, self._costs.other.value)

    def _try(self, text: Sequence[int], limit: int, best: float) -> bool:
        """Let a model draft in place of what promises most where it has waited for long enough."""
        for name, model in self._models.items():
            if name == self._drafted:
                continue
            trial_ms = TRIED * self._costs.draft(name) + self._checks[1 + TRIED] + self._costs.other.value
            patience = min(max(SOONEST, (trial_ms - 1 / best) * self._plain / TRIAL_SHARE), LATEST)
            reading = model.drafter.behind(text) * self._plain / TRIAL_SHARE
            if model.again or model.idle >= max(patience, reading):
                self._drafted, self._limit, self._trial = name, limit if model.again else min(limit, TRIED), True
                return True
        return False

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        self._due -= 1
        if self._copied:
            self._copies[self._copied][self._kind].judged(self._guess.outcome(stepped.tokens))
        if self._joint:
            self._copy_on.judge(stepped.tokens, stepped.accepted)
        own = _until(stepped, stepped.switch) if stepped.switch else stepped
        for name, model in self._models.items():
            if name == self._drafted:
                self._judge(model, own)
                model.drafter.observe(text, own)
            else:
                model.idle += 1
        for copier in self._copiers:
            copier.observe(text, stepped)
        self._fences.add(stepped.tokens)
        self._written += len(stepped.tokens)

    def _judge(self, model: _Model, stepped: Stepped) -> None:
        whole = 0 < stepped.accepted == stepped.drafted
        short = self._trial and not model.again
        model.again = short and whole
        model.idle = 0
        if model.again:
            # The text is another one than when the model was left.
            model.accepted[self._kind].forget()
        cut = whole and stepped.drafted == self._limit < self._longest
        # Of a draft that was kept whole and might have gone on it is not known how much more would have stayed.
        if not cut:
            model.accepted[self._kind].add(stepped.accepted, rare=self._trial)
            if not short:
                model.drafted[self._kind].add(stepped.drafted, rare=self._trial)

    def _look(self) -> None:
        self._due = REVIEW
        self._checks = self._costs.checks.table()
        self._plain = 1 / (self._checks[1] + self._costs.other.value)


def _until(stepped: Stepped, drafted: int) -> Stepped:
    """The step as if its draft had ended there."""
    return replace(
        stepped,
        drafts=stepped.drafts[:drafted],
        path=stepped.path[:drafted],
        confidence=stepped.confidence[:drafted],
        tested=min(stepped.tested, drafted),
        switch=0,
    )
