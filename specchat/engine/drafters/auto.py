"""Whichever family promises the most tokens a second, step by step.

What copies from earlier text is asked one after the other, until one has found what follows a long match; the longest
counts. That is weighed against a draft by a model, and whether it would have been right is seen also where it was not
taken. A model's draft must be made to be known: where it does not pay it is tried now and then (`trials.py`). One that
drafts goes on unasked for a few steps where nothing could be copied.

A model's draft may end with a copy (`copy_on.py`): what repeats often begins with tokens that nothing can be copied
after.

Texts are told apart by how much of their end occurred before: models and copies do otherwise where a text repeats
itself than where it is new. What is new is prose or code.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import cast

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import PLAIN, Chain, Copier, Copy, Follow, ModelDrafter, Proposal
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.copy_on import After, Continues, CopyOn
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.model_record import ModelRecord, Sums
from specchat.engine.drafters.parts import Parts
from specchat.engine.drafters.promises import MARGIN, Promises
from specchat.engine.drafters.rest import Rest
from specchat.engine.drafters.text_kind import copies_by_kind, kind
from specchat.engine.drafters.trials import Moment, Trials
from specchat.engine.strategy import Strategy

REVIEW, STALE = 8, 32
"""Steps after which costs are looked at anew, and after which what all models promise is worked out anew."""
RETHOUGHT = 8
"""Drafts of a model after which what it promises is worked out anew."""
ASKING, UNASKED = 0.01, 7
"""Share of the time that finding out who drafts may take, and steps at which a model that was chosen goes on without
that, at most; it does where nothing could be copied."""
LONG = 8
"""After so many tokens alike no other copy is looked for."""
COPIED_AFTER = ("draft", "target")
"""The models that a copy may go on after: heads would lack the states of what is copied."""


class AutoDrafter:
    """Drafts by other drafters, each of which is begun and told to forget by whoever has them all."""

    name = "auto"

    def __init__(
        self,
        copiers: Sequence[Copier],
        after: tuple[str, After] | None,
        models: Sequence[ModelDrafter],
        trees: Mapping[str, ModelDrafter],
        costs: StepCosts,
        fences: Fences,
    ) -> None:
        """`copiers` are asked in this order, `after` the copier of that name while one of the `models` drafts a chain;
        `trees` are by the model of that name; `costs` are measured at each step, and `fences` tell code from prose."""
        self._fences = fences
        self._copiers = copiers
        self._models = {drafter.name: ModelRecord(drafter) for drafter in models}
        self._models |= {tree.name: ModelRecord(tree, self._models[name]) for name, tree in trees.items()}
        self._promises, self._trials = Promises(self._models, costs), Trials(self._models, costs)
        self._copies = {copier.name: copies_by_kind() for copier in copiers}
        self._added = copies_by_kind()
        """The same of copies after a model's tokens."""
        self._copy_on: CopyOn | None = None
        self._follow: Follow | None = None
        if after is not None:
            self._copy_on = CopyOn(after[1], lambda matched: self._added[kind(matched, fences.code)])
            self._follow = Follow(after[0], self.name, self._copy_on.copy)
        self._costs = costs
        self._written = self._step = 0
        """Tokens of this reply, and steps of this chat."""
        self._seen = self._thought = 0
        """What was measured when costs were looked at last, and when what all models promise was worked out anew."""
        self._asking, self._noting = Mean(), Mean()
        """Milliseconds of finding out who drafts, and of taking in what came of it."""
        self._rest = Rest()
        self.tries = False
        """Whether models of which nothing is known are tried all the time: a pair is loaded."""
        self._chosen_for: tuple[int, int] | None = None
        """Length of the text and limit of the draft of a step for which `prepare` found out who drafts."""
        self.forget()
        self.begin([])

    @property
    def ahead(self) -> bool:
        return all(model.drafter.ahead for model in self._models.values())

    def prepare(self, name: str, prompt: Sequence[int], limit: int, beside: bool) -> bool:
        """Find out who drafts the first step of a reply to `prompt`, up to `limit` tokens: no token waits for it yet.

        Returns:
            whether the model of that name is to read the prompt now: `beside` the target where no model promises more,
            and otherwise only where it drafts that step.
        """
        self._look_again()
        worth = beside and self._promises.worth_reading(name, kind(0), prompt)
        self._choose(prompt, limit, name if worth else "")
        self._chosen_for = len(prompt), limit
        return worth or (self._drafted in self._models and self._models[self._drafted].reads.name == name)

    def learnt(self) -> dict[str, tuple[int, Sums, Sums]]:
        """By family that runs a model: what is known of it beyond one reply, as `ModelRecord.learnt`."""
        return {name: model.learnt() for name, model in self._models.items()}

    def take(self, learnt: Mapping[str, tuple[int, Sums, Sums]]) -> None:
        """Go on with what `learnt` gave; what is not there is new."""
        for name, known in learnt.items():
            if (model := self._models.get(name)) is not None:
                model.take(*known)
        self._promises.rethink_all()

    def think(self) -> None:
        """Between replies: work out what the next one would wait for."""
        self._look_again()
        self._promises.ranked(kind(0))

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._fences.begin()
        self._promises.begin(self._written)
        self._end = len(prompt)
        self._rest.begin()
        self._written = self._longest = self._goes_on = 0
        """Tokens of this reply, those that a draft of it may have far from its end, and steps at which the model that
        drafts goes on unasked."""
        self._chosen_for = None
        self._refused = False
        """Whether less than half of the last draft stayed."""

    def forget(self) -> None:
        """What steps cost and what drafts bring in general is kept: it belongs to machine and pair, not to a text."""
        for model in self._models.values():
            model.forget()
        for families in (*self._copies.values(), self._added):
            for family in families:
                family.forget()
        self._promises.begin(self._written)
        self._promises.forget()
        self._written = 0
        self._rest.begin()
        self._step = self._goes_on = 0
        self._looked = False
        """Whether costs were looked at since the last step."""
        self._pressing = False
        """Whether a model is to be tried again at once."""
        self._end = 0
        """Where the text ended after the last step."""
        self._drafted, self._limit, self._trial, self._watched = "plain", 0, False, False
        self._copy, self._copied, self._kind, self._best = Copy(), "", 0, 0.0
        """What can be copied, which family copies, the kind of text, and tokens a millisecond that are promised."""
        self._reads = False
        """Whether the model that drafts had to read something first."""

    def propose(self, text: Sequence[int], limit: int) -> Proposal:
        if self._rest.goes_on():
            return PLAIN
        goes_on = self._goes_on and len(text) == self._end and limit == self._limit
        self._catch_up(text)
        if goes_on and self._kind == kind(0, self._fences.code):
            self._goes_on -= 1
            self._reads = self._watched = False
            return self._models[self._drafted].drafter.propose(text, limit)
        self._goes_on = 0
        if self._chosen_for != (len(text), limit):
            began = self._costs.clock()
            self._look_again()
            self._choose(text, limit)
            self._asking.add(1e3 * (self._costs.clock() - began))
        if self._drafted in self._models:
            if not self._trial:
                self._goes_on = min(max(0, int(self._asking.value * self._promises.plain / ASKING)), UNASKED)
            return self._draft(text)
        if self._drafted != "plain":
            self._rest.found()
            return self._copy.first(self._limit)
        if limit and not (self.tries or self._pressing):
            self._rest.found_nothing(self.thinking_ms * self._promises.plain)
        return PLAIN

    def _catch_up(self, text: Sequence[int]) -> None:
        """Take in what was written meanwhile."""
        new = text[self._end :]
        self._fences.add(new)
        self._written += len(new)
        self._step += self._rest.end()
        self._end = len(text)

    @property
    def thinking_ms(self) -> float:
        """Milliseconds that a step takes to be thought about."""
        return self._asking.value + self._noting.value

    def _choose(self, text: Sequence[int], limit: int, reads: str = "") -> None:
        """Find out who drafts, and how much at most; the model named `reads` will have read `text` by then."""
        self._drafted, self._limit, self._trial, self._watched = "plain", 0, False, False
        self._copy, self._copied, self._kind = Copy(), "", kind(0, self._fences.code)
        if not limit:
            return
        looked, self._looked = self._looked, False
        self._longest = max(self._longest, limit)
        self._ask(text, limit)
        model, self._best = self._promises.most(self._kind, text, reads)
        if model:
            self._drafted, self._limit = model, limit
        if self._copied:
            found, length = self._copies[self._copied][self._kind].best(
                len(self._copy.tokens), self._promises.checks, self._costs.other_ms + self.thinking_ms
            )
            if found > self._best * MARGIN:
                self._drafted, self._limit, self._best = self._copied, length, found
        self._try(text, limit, looked)

    def _ask(self, text: Sequence[int], limit: int) -> None:
        """Find the copy after the longest match, one family after the other."""
        for copier in self._copiers:
            copy = copier.propose(text, limit)
            if copy.tokens and copy.matched >= self._copy.matched:
                self._copy, self._copied, self._kind = copy, copier.name, kind(copy.matched, self._fences.code)
            if copy.matched >= LONG:
                break

    def _draft(self, text: Sequence[int]) -> Proposal:
        """Let the model draft, and copy where that pays more than its next token; after heads nothing is copied."""
        model = self._models[self._drafted]
        self._reads = model.reads.behind(text) > 0
        proposal = model.drafter.propose(text, self._limit)
        if self._copy_on is None or not isinstance(proposal, Chain) or proposal.model not in COPIED_AFTER:
            return proposal
        self._copy_on.start(
            text,
            self._limit,
            self._best,
            lambda: self._promises.outlook(self._drafted, self._kind).stays,
            self._promises.checks,
            self._costs.draft(self._drafted),
        )
        self._watched = True
        return replace(proposal, follow=self._follow)

    def _try(self, text: Sequence[int], limit: int, looked: bool) -> None:
        """Let a model draft in place of what promises most where it is due to be tried."""
        if not (looked or self._pressing or self.tries):
            return
        plain, checks = self._promises.plain, self._promises.checks
        now = Moment(
            self._step,
            limit,
            self._kind,
            looked,
            self._drafted,
            self._best,
            plain,
            MARGIN,
            checks,
            self._times,
            self.tries,
        )
        if (due := self._trials.due(text, now)) is not None:
            (self._drafted, self._limit), self._trial = due, True

    def _times(self, name: str) -> float:
        return self._promises.outlook(name, self._kind).times

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        if self._rest.passed:
            return
        began = self._costs.clock()
        self._step += 1
        self._catch_up(text)
        if self._copied:
            self._copies[self._copied][self._kind].judged(self._copy.outcome(stepped.tokens))
        if self._copy_on is not None and self._watched:
            self._copy_on.judge(stepped.tokens)
        if (model := self._models.get(self._drafted)) is not None:
            own = _until(stepped, stepped.switch) if stepped.switch else stepped
            self._judge(model, own)
            model.drafter.observe(text, own)
        refused, self._refused = self._refused, stepped.accepted < stepped.drafted / 2
        if refused and self._refused:
            self._goes_on = 0
        self._noting.add(1e3 * (self._costs.clock() - began))

    def _judge(self, model: ModelRecord, stepped: Stepped) -> None:
        model.drafts += 1
        if self._reads:
            self._promises.read()
        if self._trial or model.drafts % RETHOUGHT == 0:
            # A chain and its tree are drafted by the same model, which has read for both.
            of_it = (one for one in self._models.values() if model in (one, one.chain) or one is model.chain)
            self._promises.rethink(of_it)
        whole = 0 < stepped.accepted == stepped.drafted
        short = self._trial and self._limit < self._longest and not model.again and model.chain is None
        model.again = short and whole
        model.last = self._step - 1
        if model.again:
            model.is_another(self._kind)
        if self._trial or self._pressing:
            self._pressing = self._trials.pressing
        cut = whole and stepped.drafted == self._limit < self._longest
        # Of a draft that was kept whole and might have gone on it is not known how much more would have stayed.
        if not cut:
            self._promises.judged(self._kind)
            model.judged(self._kind, stepped.accepted, None if short else stepped.drafted, self._trial)
            model.barren *= not self.tries

    def _look_again(self) -> None:
        """Look at costs where enough was measured since."""
        if self._costs.measured - self._seen < REVIEW:
            return
        self._seen, self._looked = self._costs.measured, True
        if self._seen - self._thought >= STALE:
            self._thought = self._seen
            self._promises.rethink_all()
        self._promises.look()


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


def _make(parts: Parts) -> AutoDrafter:
    arms = {name: drafter for name, drafter in parts.made.items() if parts.strategies[name].arm == "yes"}
    copiers = [cast(Copier, arms.pop(name)) for name in list(arms) if parts.strategies[name].group == "copied"]
    alone = (name for name in parts.made if parts.strategies[name].arm == "alone")
    models = {name: drafter for name, drafter in arms.items() if not parts.strategies[name].tree_of}
    models = models or {name: parts.made[name] for name in alone}  # the target drafts for itself
    trees = {parts.strategies[name].tree_of: drafter for name, drafter in arms.items() if name not in models}
    after = next(((copier.name, copier.after) for copier in copiers if isinstance(copier, Continues)), None)
    drafters = cast(list[ModelDrafter], list(models.values())), cast(dict[str, ModelDrafter], trees)
    return AutoDrafter(copiers, after if parts.joins else None, *drafters, parts.costs, parts.fences)


STRATEGY = Strategy(
    name="auto",
    group="auto",
    title="Auto",
    summary="Chooses at each step the strategy that is expected to give the most tokens a second, plain included.",
    draft_length=15,
    notes="""Copies, a model, the pair's heads and plain are weighed at each step by measured costs and by how many
tokens were accepted (Leviathan et al. 2023, with costs): [auto.md](auto.md). *Pays* wherever anything does; it costs
a few percent where one strategy is best throughout.""",
    make=_make,
    drafts="what pays most",
)
