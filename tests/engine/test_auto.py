"""`auto` by simulation: texts and models of which it is known how much of drafts stays and what steps cost."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest

from specchat.engine.bandit.arms import Estimate
from specchat.engine.bandit.averages import text_kind
from specchat.engine.bandit.choice import CHOOSING, UNASKED
from specchat.engine.bandit.copies import Copies
from specchat.engine.bandit.drafter import REVIEW, STALE, AutoDrafter
from specchat.engine.bandit.estimates import MARGIN, Estimates
from specchat.engine.bandit.exploration import ENOUGH, SOONEST
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Copy
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.parts import Fences
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import MAX_DRAFT_LENGTH

RIGHT, WRONG = 1, 2
"""Tokens: what comes next is always RIGHT."""


@dataclass
class World:
    """What a machine and a text are like: costs in milliseconds of steps, shares of drafted tokens that stay."""

    draft_ms: float = 0.3
    row_ms: float = 0.05
    other_ms: float = 0.1
    agrees: float = 0.8
    copies: float = 0.0
    """Share of copied tokens that stay, 0 where nothing can be copied."""
    read_ms: float = 0.0
    """Of a token that the model has not read."""
    grows: float = 0.0
    """As `agrees`, along the best path of a tree of `LEVELS` levels; 0 where there is none."""

    def promise(self, stays: float, length: int, draft_ms: float) -> float:
        """Tokens a millisecond of drafts of this length."""
        tokens = sum(stays**n for n in range(length + 1))
        return tokens / (length * draft_ms + 1 + self.row_ms * length + self.other_ms)

    def best(self) -> float:
        """Of the best fixed choice."""
        lengths = range(MAX_DRAFT_LENGTH + 1)
        return max(
            *(self.promise(self.agrees, n, self.draft_ms) for n in lengths),
            *(self.promise(self.copies, n, 0.0) for n in lengths),
        )

    @property
    def plain(self) -> float:
        return self.promise(0.0, 0, 0.0)


LEVELS = 6


@dataclass
class Scripted:
    """A model and a copier that draft as the world says."""

    name: str
    world: World
    policies: LengthPolicies
    random: random.Random
    instant: bool = True
    observed: list[StepOutcome] = field(default_factory=list)
    unread: int = 0
    matched: int = 4

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        pass

    def forget(self) -> None:
        pass

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        """As a model does that is as sure as it is right; a tree's path comes before what else it has."""
        if STRATEGIES[self.name].group == "copied":
            tokens = self._tokens(self.world.copies, limit) if self.world.copies else []
            return Copy(tokens, strategy=self.name, matched=self.matched)
        if self.name == "draft-tree":
            path = self._tokens(self.world.grows, min(limit, LEVELS))
            return Copy([*path, *[WRONG] * (limit - len(path))], strategy=self.name)
        policy, wanted = self.policies.begin(self.name, timed=True), 1
        while wanted < limit and not policy.ends(self.world.agrees):
            wanted += 1
        tokens = self._tokens(self.world.agrees, wanted)
        return Copy(tokens, confidence=[self.world.agrees] * len(tokens), strategy=self.name)

    def reading_ms(self, text: Sequence[int]) -> float:
        return self.unread * self.world.read_ms

    def observe(self, text: Sequence[int], outcome: StepOutcome) -> None:
        self.observed.append(outcome)

    def _tokens(self, stays: float, limit: int) -> list[int]:
        return [RIGHT if self.random.random() < stays else WRONG for _ in range(limit)]


class Simulation:
    """`auto` with one copier, one model and, with a world of its own, heads; time passes as the world says."""

    def __init__(self, world: World, seed: int = 0, heads: World | None = None) -> None:
        self.world = world
        self.ms = 0.0
        self.costs = StepCosts(lambda: self.ms / 1000)
        self.policies = LengthPolicies(self.costs)
        chance = random.Random(seed)
        self.copier = Scripted("lookup", world, self.policies, chance)
        self.model = Scripted("draft", world, self.policies, chance)
        self.fences = Fences()
        trees = {"draft": Scripted("draft-tree", world, self.policies, chance)} if world.grows else {}
        models = [self.model]
        if heads is not None:
            self.heads = Scripted("eagle3", heads, self.policies, chance)
            models.append(self.heads)
        self.auto = AutoDrafter([self.copier], None, models, trees, self.costs, self.fences)
        self.text = [0, 0]
        self.auto.begin(self.text)
        self.tokens = 0

    def step(self, limit: int = MAX_DRAFT_LENGTH) -> tuple[str, int, int]:
        """One step: who drafted, how many tokens, and how many stayed."""
        self.policies.start()
        draft = self.auto.propose(self.text, limit)
        assert isinstance(draft, Copy)
        family, tokens = draft.strategy, tuple(draft.tokens)
        accepted = next((i for i, token in enumerate(tokens) if token != RIGHT), len(tokens))
        passes = {"draft": len(tokens), "draft-tree": min(len(tokens), LEVELS)}.get(family, 0)
        draft_ms = passes * self.world.draft_ms
        if family == "eagle3":
            draft_ms = len(tokens) * self.heads.world.draft_ms
        verify_ms = 1 + self.world.row_ms * len(tokens)
        self.ms += draft_ms + verify_ms + self.world.other_ms
        self.text += [RIGHT] * (accepted + 1)
        self.tokens += accepted + 1
        path = tuple(range(1, accepted + 1))
        new, sure = (RIGHT,) * (accepted + 1), tuple(draft.confidence)
        outcome = StepOutcome(new, tokens, sure, min(accepted + 1, len(tokens)), path, draft_ms, verify_ms)
        self.policies.observe(outcome)
        self.costs.add(family, outcome)
        self.auto.observe(self.text, outcome)
        return family, len(tokens), accepted

    def speed(self, steps: int) -> float:
        """Tokens a millisecond over so many steps."""
        tokens, ms = self.tokens, self.ms
        for _ in range(steps):
            self.step()
        return (self.tokens - tokens) / (self.ms - ms)

    def expected(self, steps: int) -> float:
        """What the choices of so many steps promise in this world, as a share of what the best fixed choice does."""
        tokens = ms = 0.0
        for _ in range(steps):
            family, drafted, _ = self.step()
            stays = self.world.agrees if family == "draft" else self.world.copies
            tokens += sum(stays**n for n in range(drafted + 1))
            ms += drafted * self.world.draft_ms * (family == "draft") + 1 + self.world.row_ms * drafted
            ms += self.world.other_ms
        return tokens / ms / self.world.best()


WORLDS = [
    World(),
    World(agrees=0.95),
    World(agrees=0.3),
    World(agrees=0.05),
    World(draft_ms=0.6, row_ms=0.2, agrees=0.6),
    World(draft_ms=0.6, row_ms=0.2, agrees=0.2),
    World(agrees=0.5, copies=0.9),
    World(agrees=0.9, copies=0.1),
    World(agrees=0.1, copies=0.1, row_ms=0.3),
]


@pytest.mark.parametrize("world", WORLDS)
def test_it_settles_within_forty_steps(world: World) -> None:
    """From cold the promise of what it then chooses is 0.95 of the best fixed choice at least."""
    shares = []
    for seed in range(8):
        simulation = Simulation(world, seed)
        simulation.speed(40)
        shares.append(simulation.expected(40))
    assert sum(shares) / len(shares) >= 0.95


@pytest.mark.rotated(4)
@pytest.mark.parametrize("before", WORLDS[:4] + WORLDS[6:8])
@pytest.mark.parametrize("after", WORLDS[:4] + WORLDS[6:8])
def test_it_settles_within_forty_steps_of_another_text(before: World, after: World) -> None:
    shares = []
    for seed in range(8):
        simulation = Simulation(before, seed)
        simulation.speed(120)
        for one in (simulation, simulation.copier, simulation.model):
            one.world = after
        simulation.speed(40)
        shares.append(simulation.expected(40))
    assert sum(shares) / len(shares) >= 0.84


@pytest.mark.parametrize("world", WORLDS)
def test_in_the_long_run_it_is_never_slower_than_plain(world: World) -> None:
    simulation = Simulation(world)
    simulation.speed(100)
    assert simulation.speed(3000) >= 0.97 * world.plain


@pytest.mark.parametrize(("tokens", "family"), [(6, "plain"), (200, "draft")])
def test_a_model_that_must_read_first_is_taken_for_long_replies(tokens: int, family: str) -> None:
    simulation = Simulation(World(agrees=0.9, read_ms=0.02))
    for _ in range(30):
        simulation.auto.begin(simulation.text)
        end = len(simulation.text) + tokens
        while len(simulation.text) < end:
            simulation.step()
    simulation.auto.begin(simulation.text)
    assert simulation.step()[0] == "draft"
    simulation.model.unread = 400
    simulation.auto.begin(simulation.text)
    assert simulation.step()[0] == family


def test_what_was_read_is_not_counted_any_more() -> None:
    """The model reads a prompt beside the target, or as it first drafts: what it promises then has no reading in it."""
    simulation = Simulation(World(agrees=0.7, read_ms=0.02))
    auto, model = simulation.auto, simulation.model
    simulation.speed(100)
    auto.forget()
    estimates, arm = auto._estimates, auto._arms["draft"]
    while not 1 < estimates._with_reading(arm, estimates.estimate("draft", 0).times, simulation.text) < MARGIN:
        model.unread += 5
    auto.begin(simulation.text)
    assert auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=True)
    model.unread = 0
    assert simulation.step()[0] == "draft"
    model.unread = 400
    auto.begin(simulation.text)
    (_, dear), _ = estimates.best(0, simulation.text), simulation.step()
    model.unread = 0
    assert estimates.best(0, simulation.text)[1] > dear


def test_a_model_is_tried_less_often_where_it_must_read_much_for_that() -> None:
    simulation = Simulation(World(agrees=0.02, read_ms=0.02))
    simulation.speed(100)
    trials = []
    for simulation.model.unread in (0, 500):
        trials.append([simulation.step()[0] for _ in range(300)].count("draft"))
    assert trials[0] > 4 * trials[1]


def test_prose_and_code_are_told_apart() -> None:
    """A model that knows the one and not the other drafts at once where it is back at what it knows."""
    simulation = Simulation(World())
    for _ in range(6):
        for simulation.fences.code, agrees in ((False, 0.9), (True, 0.02)):
            simulation.model.world = World(agrees=agrees)
            families = [simulation.step()[0] for _ in range(60)]
    assert families[:3] == ["plain"] * 3
    simulation.fences.code, simulation.model.world = False, World(agrees=0.9)
    assert [simulation.step()[0] for _ in range(3)] == ["draft"] * 3
    assert text_kind(0) != text_kind(0, code=True)
    assert text_kind(9) == text_kind(9, code=True)


def test_a_model_that_drafts_goes_on_while_its_tokens_stay_and_nothing_is_copied() -> None:
    """All is weighed as often as takes little of the time, and at once after a refusal or where copies are found."""

    def asked(ms: float, agrees: float = 1.0, copies: float = 0.0) -> int:
        """Times in 40 steps, each of which takes so long."""
        simulation = Simulation(World(agrees=0.99))
        guess = simulation.copier.propose
        times: list[float] = []

        def timed(text: Sequence[int], limit: int) -> Copy:
            times.append(simulation.ms)
            simulation.ms += ms
            return guess(text, limit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulation.copier, "propose", timed)
            simulation.speed(100)
            simulation.model.world = World(agrees=agrees)
            simulation.copier.world = World(copies=copies)
            simulation.speed(4)
            times.clear()
            simulation.speed(40)
        return len(times)

    assert asked(0.0) == 40
    assert asked(3.5 * CHOOSING) == 10
    assert asked(100 * CHOOSING) == 40 / (1 + UNASKED)
    assert asked(100 * CHOOSING, agrees=0.05) > 35
    assert asked(100 * CHOOSING, copies=0.9) == 40
    assert asked(100 * CHOOSING, copies=0.01) == 40


def test_a_tree_is_taken_where_it_pays() -> None:
    simulation = Simulation(World(draft_ms=0.1, row_ms=0.002, agrees=0.7, grows=0.85))
    simulation.speed(150)
    families = [simulation.step()[0] for _ in range(1000)]
    assert families.count("draft-tree") > 850


def test_a_tree_that_keeps_no_more_is_left() -> None:
    world = World(draft_ms=0.1, row_ms=0.002, agrees=0.7, grows=0.5)
    simulation, chain = Simulation(world), Simulation(replace(world, grows=0.0))
    for one in (simulation, chain):
        one.speed(100)
    families = [simulation.step()[0] for _ in range(300)]
    assert 1 <= families.count("draft-tree") < 30
    assert simulation.speed(2000) > 0.96 * chain.speed(2000)


@pytest.mark.parametrize(("draft_ms", "row_ms"), [(0.3, 0.2), (0.6, 0.08)])
def test_a_tree_that_cannot_pay_is_never_tried(draft_ms: float, row_ms: float) -> None:
    simulation = Simulation(World(draft_ms=draft_ms, row_ms=row_ms, agrees=0.8, grows=0.9))
    simulation.speed(20)
    assert "draft-tree" not in {simulation.step()[0] for _ in range(300)}


HEADED_WORLDS = [
    (World(agrees=0.6, draft_ms=0.4), World(agrees=0.8, draft_ms=0.1), "eagle3"),
    (World(agrees=0.9, draft_ms=0.1), World(agrees=0.5, draft_ms=0.2), "draft"),
    (World(agrees=0.02), World(agrees=0.02), "plain"),
]


@pytest.mark.parametrize(("world", "heads", "family"), HEADED_WORLDS)
def test_of_a_model_and_heads_the_better_is_taken(world: World, heads: World, family: str) -> None:
    for seed in range(4):
        simulation = Simulation(world, seed, heads)
        simulation.speed(60)
        families = [simulation.step()[0] for _ in range(300)]
        assert families.count(family) > 0.9 * len(families)


def test_heads_take_over_where_the_text_becomes_theirs_and_give_back() -> None:
    simulation = Simulation(World(agrees=0.9, draft_ms=0.1), heads=World(agrees=0.05, draft_ms=0.1))
    simulation.speed(60)
    for agrees, family in ((0.05, "eagle3"), (0.9, "draft")):
        simulation.model.world = World(agrees=agrees, draft_ms=0.1)
        simulation.heads.world = World(agrees=0.95 - agrees, draft_ms=0.1)
        simulation.speed(160)
        assert [simulation.step()[0] for _ in range(60)].count(family) > 50


def test_trials_of_many_models_cost_no_more_than_those_of_one() -> None:
    few, many = Simulation(World(agrees=0.02)), Simulation(World(agrees=0.02), heads=World(agrees=0.02))
    trials = []
    for simulation in (few, many):
        simulation.speed(150)
        trials.append([simulation.step()[0] for _ in range(600)].count("plain"))
    assert abs(trials[0] - trials[1]) < 20
    assert many.speed(2000) >= 0.97 * many.world.plain


def test_only_what_promises_most_is_worth_reading_for() -> None:
    simulation = Simulation(World(agrees=0.6, draft_ms=0.4), heads=World(agrees=0.9, draft_ms=0.1))
    simulation.speed(100)
    used = [
        simulation.auto.prepare(name, simulation.text, MAX_DRAFT_LENGTH, parallel=True)
        for name in ("draft", "eagle3", "swift")
    ]
    assert used == [False, True, False]


def test_what_was_not_taken_is_learnt_from() -> None:
    """While copies fail the model drafts; copies that come true are seen without being drafted."""
    simulation = Simulation(World(agrees=0.7, copies=0.02))
    simulation.speed(60)
    assert {simulation.step()[0] for _ in range(20)} == {"draft"}
    for one in (simulation, simulation.copier, simulation.model):
        one.world = World(agrees=0.7, copies=0.98)
    simulation.speed(40)
    families = [simulation.step()[0] for _ in range(20)]
    assert families.count("lookup") >= 18


@pytest.mark.parametrize("world", [World(agrees=0.02), World(agrees=0.02, draft_ms=0.6)])
def test_a_model_that_does_not_pay_is_tried_now_and_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With short drafts unless they stay, and it does not go on unasked, however long finding out takes."""
    simulation = Simulation(world)
    guess = simulation.copier.propose

    def slow(text: Sequence[int], limit: int) -> Copy:
        simulation.ms += 1.0
        return guess(text, limit)

    monkeypatch.setattr(simulation.copier, "propose", slow)
    simulation.speed(100)
    steps = [simulation.step() for _ in range(200)]
    trials = [drafted for family, drafted, _ in steps if family == "draft"]
    assert 2 <= len(trials) <= 200 / SOONEST
    assert max(trials) == 1


def test_a_model_that_could_not_pay_if_all_were_accepted_is_never_tried() -> None:
    simulation = Simulation(World(agrees=1.0, draft_ms=1.2))
    simulation.speed(100)  # what a draft costs is known only once there was one
    assert {simulation.step()[0] for _ in range(400)} == {"plain"}


def test_it_is_tried_in_a_chat_of_short_replies_too() -> None:
    """Each begins as a session begins it: whether the model will be used is asked before the first step."""
    simulation = Simulation(World(agrees=0.02))
    simulation.speed(100)
    families: list[str] = []
    for _ in range(60):
        simulation.auto.begin(simulation.text)
        simulation.auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=True)
        families += [simulation.step()[0] for _ in range(4)]
    assert 2 <= families.count("draft") <= len(families) / SOONEST


def test_a_model_is_tried_in_chats_that_are_shorter_than_its_wait() -> None:
    """What its drafts cost was measured at a bad moment, and is not measured again before it drafts."""
    simulation = Simulation(World(agrees=0.9, draft_ms=0.1))
    simulation.costs.expect({1: 1.0, 16: 1.8}, {"draft": {1: 0.9, 8: 7.2}})
    chats = []
    for _ in range(6):
        simulation.auto.forget()
        simulation.auto.begin(simulation.text)
        chats.append([simulation.step()[0] for _ in range(20)])
    assert set(chats[0]) == {"plain"}
    assert chats[-1].count("draft") > 15


def test_a_close_model_of_few_known_drafts_is_tried_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have drafted at load where the text suited it least, and must read the chat first."""
    monkeypatch.setattr(Estimates, "estimate", lambda *_: Estimate(1.02, 0.5))
    waited = []
    for known in (ENOUGH, ENOUGH - 1):
        simulation = Simulation(World(read_ms=0.02))
        simulation.auto._arms["draft"].known, simulation.model.unread = known, 60
        waited.append([simulation.step()[0] for _ in range(90)].index("draft"))
    assert waited[0] > 50 > 25 > waited[1]


def test_fences_are_followed_through_each_reply() -> None:
    simulation = Simulation(World(agrees=0.0))
    simulation.fences.know({RIGHT: "```\n"})
    simulation.auto.begin(simulation.text)
    told = []
    for _ in range(3):
        simulation.step(limit=0)
        told.append(simulation.fences.code)
    assert told == [True, False, True]
    simulation.auto.begin(simulation.text)
    assert not simulation.fences.code


def test_a_model_takes_the_place_of_plain_for_a_clear_gain_and_keeps_it_for_a_small_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(World())
    auto = simulation.auto
    for gain, drafts in ((1.05, False), (1.1, True), (1.05, True), (0.98, False), (1.05, False)):
        monkeypatch.setattr(auto._estimates, "ranked", lambda _, gain=gain: [(gain, "draft")])
        auto.begin(simulation.text)
        families = [simulation.step()[0] for _ in range(7)]
        assert (families.count("draft") > 4) == drafts


@pytest.mark.parametrize(("here", "there"), [(4, 7), (7, 4), (4, 4), (8, 30)])
def test_the_longer_match_is_copied(here: int, there: int) -> None:
    """The later family's among equals; none other is asked after eight tokens alike."""
    simulation = Simulation(World(agrees=0.02, copies=0.95))
    second = Scripted("suffix", simulation.world, simulation.policies, random.Random(1))
    simulation.copier.matched, second.matched = here, there
    simulation.auto = AutoDrafter(
        [simulation.copier, second],
        None,
        [simulation.model],
        {},
        simulation.costs,
        simulation.fences,
    )
    simulation.speed(30)
    families = {simulation.step()[0] for _ in range(10)} - {"draft"}
    assert families == {"suffix" if here <= there and here < 8 else "lookup"}


def test_forgetting_drafts_keeps_what_steps_cost() -> None:
    """A model too dear to pay is not taken again in a text that nothing is known of."""
    simulation = Simulation(World(draft_ms=3.0))
    simulation.speed(60)
    simulation.auto.forget()
    assert simulation.step()[0] == "plain"


def test_jumps_of_the_clock_do_no_harm() -> None:
    simulation = Simulation(World(agrees=0.9))
    simulation.speed(40)
    for jump in (1e9, -1e9):
        simulation.ms += jump
        simulation.step()
    assert simulation.expected(40) >= 0.95


def test_it_is_ahead_where_its_models_are() -> None:
    simulation = Simulation(World())
    assert simulation.auto.instant
    simulation.model.instant = False
    assert not simulation.auto.instant


def test_only_who_drafted_sees_the_outcome() -> None:
    simulation = Simulation(World(agrees=0.02))
    families = [simulation.step()[0] for _ in range(100)]
    assert len(simulation.model.observed) == families.count("draft") < 100


def test_a_step_with_no_room_for_a_draft_is_plain() -> None:
    assert Simulation(World()).step(limit=0) == ("plain", 0, 0)


def test_a_step_dropped_on_the_way_is_no_lesson() -> None:
    simulation = Simulation(World(agrees=0.9))
    simulation.speed(20)
    simulation.auto.propose(simulation.text, 4)
    assert simulation.expected(40) >= 0.95


def test_outcomes_of_guesses() -> None:
    assert Copy([5, 6, 7]).matches([5, 9]) == [True, False, False]
    assert Copy([5, 6, 7]).matches([5, 6]) == [True, True, None]
    tree = Copy([5, 6, 7, 8], parents=[0, 1, 1, 0])
    assert tree.matches([5, 7, 1]) == [True, False, True, False]
    assert tree.matches([5]) == [True, None, None, False]
    assert tree.matches([8, 6]) == [False, False, False, True]


def test_a_copy_takes_the_place_of_a_model_for_a_clear_gain_only(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(World(agrees=0.9, copies=0.9))
    for model, gain, family in (
        ("draft", 1.05, "draft"),
        ("draft", 1.1, "lookup"),
        ("", 1.05, "plain"),
        ("", 1.1, "lookup"),
    ):
        monkeypatch.setattr(simulation.auto._estimates, "best", lambda *_, model=model: (model, 1.0))
        monkeypatch.setattr(Copies, "best", lambda *_, gain=gain: (gain, 4))
        assert simulation.step()[0] == family


def test_a_trial_that_is_kept_is_followed_by_a_whole_draft() -> None:
    simulation = Simulation(World(agrees=0.02))
    simulation.speed(100)
    simulation.model.world = World(agrees=1.0)
    steps = [simulation.step() for _ in range(70)]
    trial = next(at for at, (family, drafted, _) in enumerate(steps) if (family, drafted) == ("draft", 1))
    family, drafted, _ = steps[trial + 1]
    assert family == "draft"
    assert drafted > 1


def test_costs_that_are_measured_anew_count_at_once() -> None:
    """What drafts cost while a pair is loaded, and its kernels are compiled, is not what they cost later."""
    simulation = Simulation(World(agrees=0.9))
    simulation.costs.expect({1: 1.0, 16: 1.8}, {"draft": {1: 500.0, 8: 4000.0}})
    assert simulation.step()[0] == "plain"
    simulation.costs.forget()
    simulation.costs.expect({1: 1.0, 16: 1.8}, {"draft": {1: 0.1, 8: 0.8}})
    simulation.auto.forget()
    simulation.auto.begin(simulation.text)
    assert simulation.step()[0] == "draft"


def test_two_refusals_in_a_row_end_what_goes_on_unasked() -> None:
    simulation = Simulation(World(agrees=1.0))
    auto = simulation.auto
    simulation.speed(100)
    left = []
    for agrees in (1.0, 0.0, 1.0, 0.0, 0.0):
        auto._reply.goes_on = 5
        simulation.model.world = World(agrees=agrees)
        simulation.step()
        left.append(auto._reply.goes_on)
    assert left == [4, 4, 4, 4, 0]


def test_where_another_strategy_wrote_all_is_weighed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(World(agrees=1.0))
    simulation.speed(100)
    asked: list[int] = []
    monkeypatch.setattr(simulation.copier, "propose", lambda text, _: asked.append(len(text)) or Copy())
    for grown in (0, 50):
        simulation.auto._reply.goes_on = 5
        simulation.text += [0] * grown
        before = len(simulation.text)
        simulation.step()
        assert asked == [before] * (grown > 0)


def test_who_drafts_first_is_found_out_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(World(agrees=1.0))
    simulation.speed(100)
    auto, asked = simulation.auto, list[int]()
    monkeypatch.setattr(simulation.copier, "propose", lambda _, limit: asked.append(limit) or Copy())
    for limit, another, known in (
        (MAX_DRAFT_LENGTH, False, True),
        (MAX_DRAFT_LENGTH - 1, False, False),
        (MAX_DRAFT_LENGTH, True, False),
    ):
        auto.begin(simulation.text)
        assert auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=True)
        asked.clear()
        if another:
            auto.begin(simulation.text)
        assert simulation.step(limit)[0] == "draft"
        assert asked == [limit] * (not known)


@pytest.mark.parametrize(("promised", "family"), [(1.2, "plain"), (2.5, "draft-tree")])
def test_who_drafts_first_has_read_the_prompt_if_that_is_worth_it(
    promised: float, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain and its tree, which have the same to read: 40 tokens' time of a reply of 64."""
    simulation = Simulation(World(grows=0.9, read_ms=0.1))
    auto = simulation.auto
    simulation.speed(100)
    auto.forget()
    auto.begin(simulation.text)
    ranked = [(promised + 0.2, "draft-tree"), (promised, "draft")]
    monkeypatch.setattr(auto._estimates, "ranked", lambda _: ranked)
    monkeypatch.setattr(simulation.model, "unread", 400)
    assert auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=True) == (family != "plain")
    assert simulation.step()[0] == family


@pytest.mark.parametrize(
    ("promised", "name", "copies", "family"),
    [
        ([(2.5, "draft")], "draft", 0.0, "draft"),
        ([(4.0, "draft-tree"), (2.5, "draft")], "draft", 0.0, "draft-tree"),
        ([(2.5, "draft")], "eagle3", 0.0, "draft"),
        ([(1.2, "draft")], "draft", 0.0, "plain"),
        ([(1.2, "draft-tree")], "draft", 0.0, "plain"),
        ([(2.5, "draft")], "draft", 1.0, "lookup"),
    ],
)
def test_what_is_not_read_beside_the_target_is_read_where_it_drafts_first(
    promised: list[tuple[float, str]], name: str, copies: float, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 tokens' time of a reply of 64 counts."""
    simulation = Simulation(World(grows=0.9, read_ms=0.1, copies=copies))
    auto = simulation.auto
    simulation.speed(100)
    auto.begin(simulation.text)
    monkeypatch.setattr(auto._estimates, "ranked", lambda _: promised)
    monkeypatch.setattr(simulation.model, "unread", 400)
    reads = auto.prepare(name, simulation.text, MAX_DRAFT_LENGTH, parallel=False)
    assert reads == (name == "draft" and family.startswith("draft"))
    assert simulation.step()[0] == family


def test_what_was_thought_between_replies_no_reply_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(World(agrees=0.8))
    auto = simulation.auto
    simulation.speed(20 * STALE + REVIEW)
    estimate, asked = auto._estimates.estimate, list[str]()
    monkeypatch.setattr(auto._estimates, "estimate", lambda name, of: (asked.append(name), estimate(name, of))[1])
    for thinks in (True, False):
        simulation.speed(STALE)
        auto._estimates.refresh_all()
        asked.clear()
        if thinks:
            auto.rank()
            assert asked == ["draft"]
        asked.clear()
        auto.begin(simulation.text)
        auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=False)
        assert asked == ["draft"] * (not thinks)


def test_a_model_that_hardly_pays_is_not_taken_for_being_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(World())
    auto = simulation.auto
    for gain, used, family in (
        (0.9, False, "plain"),
        (1.05, True, "plain"),
        (1.1, True, "draft"),
        (1.05, True, "draft"),
    ):
        monkeypatch.setattr(auto._estimates, "ranked", lambda _, gain=gain: [(gain, "draft")])
        auto.begin(simulation.text)
        assert auto.prepare("draft", simulation.text, MAX_DRAFT_LENGTH, parallel=True) == used
        assert simulation.step()[0] == family
