"""Whichever family promises the most tokens a second, step by step.

What copies from earlier text is asked at every step, for that costs next to nothing: one after the other, until one
has found something. That is weighed against a draft by a model, and whether it would have been right is seen also
where it was not taken. A model's draft must be made to be known: where it does not pay it is tried now and then, at a
small share of the time.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

from specchat.engine.decoding.costs import CheckCosts, Mean
from specchat.engine.decoding.draft import Drafter, Drafts
from specchat.engine.decoding.pace import GOES_ON, KEPT, KEPT_TRIAL, Family
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.guess import Copier, Guess
from specchat.engine.drafters.occurrences import KEY
from specchat.engine.strategies import MAX_DRAFT_LENGTH

REVIEW = 4
"""Steps between two looks at what is promised."""
MARGIN = 1.08
"""Another family is taken where it promises so much more."""
TRIED = 1
"""Tokens of a trial's draft at least."""
TRIAL_SHARE = 0.012
"""What the trials of one family may lose, as a share of the time."""
SOONEST, LATEST = 8, 64
"""Steps that each trial of a family is waited for."""
ASSUMED, ASSUMED_COPIED = 0.9, 0.5
"""Shares of drafted tokens that stay, before any was judged: of a model's and of copies after the shortest match."""
SURER = 0.15
"""How much more is assumed to stay for each doubling of what matched."""
MATCHES = 4
"""Copies are told apart by the length of what matched: 2 and 3 tokens, 4 to 7, 8 to 15, and more."""


class _Model:
    """A family that runs a model, and when it is tried."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.family = Family(ASSUMED, GOES_ON)
        self.forget()

    def forget(self) -> None:
        self.family.forget()
        self.idle = 0
        """Steps since it drafted."""
        self.wait = self.patience = SOONEST
        """Steps until the next trial, and from one to the next."""
        self.again = False
        """Whether its last trial kept all it drafted: then another follows at once."""

    def price(self, promise: float, plain_ms: float) -> None:
        """Set the patience by what a trial that keeps nothing loses against the `promise` of the best choice."""
        _, ms = self.family.steps[self.trial]
        loss = (ms - 1 / promise) / plain_ms
        self.patience = round(min(max(SOONEST, loss / TRIAL_SHARE), LATEST))

    @property
    def trial(self) -> int:
        """The length of a trial's draft."""
        return max(TRIED, self.family.best(MAX_DRAFT_LENGTH)[1])


class AutoDrafter:
    """Drafts by other drafters, each of which is begun and told to forget by whoever has them all."""

    name = "auto"

    def __init__(
        self,
        drafts: Drafts,
        copiers: Sequence[Copier],
        models: Sequence[Drafter],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`copiers` are asked in this order; `models` draft chains; `clock` tells seconds."""
        self._drafts = drafts
        self._copiers = copiers
        self._models = {drafter.name: _Model(drafter) for drafter in models}
        self._copies = {
            copier.name: [Family(ASSUMED_COPIED + SURER * surer) for surer in range(MATCHES)] for copier in copiers
        }
        self._clock = clock
        self._checks = CheckCosts()
        self._other = Mean()
        self._text, self._since = 0, 0.0
        """Tokens after the last step, and when it ended."""
        self.forget()

    @property
    def ahead(self) -> bool:
        return all(model.drafter.ahead for model in self._models.values())

    def begin(self, prompt: Sequence[int]) -> None:
        self._text = 0

    def forget(self) -> None:
        """What steps cost is kept: it belongs to the machine, not to a text."""
        for model in self._models.values():
            model.forget()
        for families in self._copies.values():
            for family in families:
                family.forget()
        self._favourite = ""
        """The model that drafts; empty where plain decoding promises more."""
        self._due = self._reviews = 0
        """Steps until the next review."""
        self._drafted = "plain"
        self._limit = 0
        self._trial = False
        self._guess = Guess()
        self._copied: Family | None = None
        """What is known of copies like the guess."""

    def propose(self, text: Sequence[int], limit: int) -> str:
        if self._due <= 0:
            self._review()
        self._fresh = len(text) == self._text
        promise, self._drafted, self._limit = self._plain, "plain", 0
        self._trial = False
        if self._favourite and limit:
            promise, self._limit = self._models[self._favourite].family.best(limit)
            self._drafted = self._favourite
        self._copied = None
        copies = limit > 0 and self._ask(text, limit, promise)
        if limit:
            self._try(limit)
        if copies and not self._trial:
            self._guess.fill(self._drafts, self._limit)
            return self._drafted
        return self._models[self._drafted].drafter.propose(text, self._limit) if self._limit else "plain"

    def _ask(self, text: Sequence[int], limit: int, promise: float) -> bool:
        """Ask what can be copied; whether that promises more than so many tokens a millisecond."""
        for copier in self._copiers:
            guess = copier.guess(text, limit)
            if guess.tokens:
                surer = min(max(guess.matched, KEY).bit_length() - KEY, MATCHES - 1)
                self._guess, self._copied = guess, self._copies[copier.name][surer]
                if self._copied.reviewed != self._reviews:
                    self._copied.review(self._checks_ms, self._other.value, self._reviews)
                found, length = self._copied.best(len(guess.tokens))
                if found > promise:
                    self._drafted, self._limit = copier.name, length
                return found > promise
        return False

    def _try(self, limit: int) -> None:
        """Let a model draft in place of what promises most where it has waited for long enough."""
        for name, model in self._models.items():
            if name != self._drafted and (model.wait <= 0 or model.again):
                self._drafted, self._limit, self._trial = name, min(limit, model.trial), True
                return

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        self._costs(stepped)
        self._due -= 1
        if self._copied is not None:
            self._copied.judged(self._guess.outcome(stepped.tokens), len(self._guess.tokens))
        for name, model in self._models.items():
            model.idle += 1
            model.wait -= 1
            if name == self._drafted:
                self._judge(model, stepped)
                model.drafter.observe(text, stepped)
        for copier in self._copiers:
            copier.observe(text, stepped)
        self._text = len(text)

    def _judge(self, model: _Model, stepped: Stepped) -> None:
        outcome = [place < stepped.accepted for place in range(self._limit)]
        model.family.judged(outcome, stepped.drafted, KEPT_TRIAL if self._trial else KEPT)
        # Where the model was left out for a while it read the text since, too.
        if stepped.drafted and (model.idle == 1 or not model.family.draft_ms.count):
            model.family.draft_ms.add(stepped.draft_ms / stepped.drafted)
        model.idle, model.wait = 0, model.patience
        if self._trial:
            self._due = 0
            model.again = 0 < stepped.accepted == stepped.drafted

    def _costs(self, stepped: Stepped) -> None:
        now = self._clock()
        self._checks.add(1 + stepped.drafted, stepped.verify_ms)
        if self._fresh:
            self._other.add(max(0.0, 1e3 * (now - self._since) - stepped.draft_ms - stepped.verify_ms))
        self._since = now

    def _review(self) -> None:
        """See what each family promises, and choose the model that drafts."""
        self._due = REVIEW
        self._reviews += 1
        checks = self._checks_ms = self._checks.table()
        other = self._other.value
        plain_ms = checks[1] + other
        self._plain = 1 / plain_ms
        best, favourite = self._plain, ""
        for name, model in self._models.items():
            if name == self._favourite or model.idle <= REVIEW or self._reviews % REVIEW == 1:
                model.family.review(checks, other, self._reviews)
            promise = model.family.best(MAX_DRAFT_LENGTH)[0]
            if name == self._favourite:
                promise = promise * MARGIN if promise > self._plain else 0.0
            if promise > best * MARGIN:
                best, favourite = promise, name
        self._favourite = favourite
        for model in self._models.values():
            model.price(best, plain_ms)
