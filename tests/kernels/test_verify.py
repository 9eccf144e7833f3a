"""From logits to accepted tokens on the device, against the host's sampler and judge given the device's noise."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.acceptance import judge as host_judge
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.errors import ModelError
from specchat.engine.kernels import choose as choosing
from specchat.engine.kernels.block import judge_block
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import BLOCK, Scored, VerifyState
from specchat.engine.protocol.options import ACCEPTANCES, Acceptance, Sampling
from tests.gpu_net.runtime import flat
from tests.kernels import compiled

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
ROWS = 16
PROMPT = [1, 2, 3, 2]

PENALTIES = Sampling(
    repetition_penalty=1.3, presence_penalty=0.3, frequency_penalty=0.2, logit_bias={4: 2.0, 7: -100.0}
)
SAMPLED = Sampling(seed=11, temperature=0.9)
TOP_K = replace(SAMPLED, top_k=7)
TOP_P = replace(SAMPLED, top_p=0.8)
MIN_P = replace(SAMPLED, min_p=0.05)
EVERYTHING = replace(PENALTIES, seed=2**63 + 7, temperature=1.2, top_k=12, top_p=0.9, min_p=0.02)
FILTERS = [
    TOP_K,
    TOP_P,
    MIN_P,
    EVERYTHING,
    replace(SAMPLED, top_k=1),
    replace(SAMPLED, top_p=0.05),
    replace(TOP_K, min_p=0.1),
    replace(TOP_P, min_p=0.3),
    replace(TOP_P, top_k=40),
]


def started(vocab: int, sampling: Sampling, acceptance: Acceptance = "coupled", eos: Sequence[int] = ()) -> VerifyState:
    state = VerifyState.create(vocab, ROWS, DEVICE)
    state.set_sampling(sampling)
    state.set_acceptance(acceptance)
    state.begin(PROMPT, eos)
    return state


def feed(state: VerifyState, tokens: Sequence[int]) -> None:
    state.fed[1 : len(tokens) + 1] = torch.tensor(tokens, dtype=torch.int32)
    state.drafted.fill_(len(tokens))


def random_logits(rows: int, vocab: int, seed: int, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def histories(fed: Sequence[int]) -> list[History]:
    """What each row's penalties see."""
    made = []
    for row in range(len(fed) + 1):
        history = History(PROMPT)
        for token in fed[:row]:
            history.push(token)
        made.append(history)
    return made


def probabilities(scored: Scored, row: int, vocab: int) -> Tensor:
    """The distribution that `choose` left in `scored`, from its documentation alone: float32 [vocab]."""
    scores = scored.scores[row, :vocab].cpu()
    cut, last = scored.kept[row, :2].tolist()
    top, mass = scored.norm[row, :2].tolist()
    bits = scores.view(torch.int32)
    key = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    kept = ((key > cut) | ((key == cut) & (torch.arange(vocab) <= last))) & (scores > -torch.inf)
    return torch.where(kept, (scores - top).exp() / mass, 0.0)


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, PENALTIES, EVERYTHING], ids=["greedy", "T", "penal", "all"])
@pytest.mark.parametrize("vocab", [300, BLOCK + 904])
def test_scores_are_the_samplers(sampling: Sampling, vocab: int) -> None:
    fed = [5, 2, 5]
    logits = random_logits(3, vocab + 24, vocab)
    logits[:, vocab:] = 1e9
    state, scored = started(vocab, sampling), Scored.create(ROWS, vocab + 24, DEVICE)
    feed(state, fed)
    process(logits[1:].to(DEVICE), state, 1, scored, 2, vocab)
    plain = Sampler(replace(sampling, top_k=0, top_p=1.0, min_p=0.0))
    for row, history in enumerate(histories(fed)[1:3]):
        expected = plain.scores(logits[row + 1, :vocab], history)
        made = scored.scores[row, :vocab].cpu()
        torch.testing.assert_close(made, expected, rtol=1e-6, atol=1e-6)
        assert int(scored.best[row].argmax()) == int(made.argmax()) // BLOCK
        assert int(scored.best_id[row, int(made.argmax()) // BLOCK]) == int(made.argmax())
        if sampling.temperature:
            mass = (scored.total[row].double() * (scored.best[row] - made.max().to(DEVICE)).double().exp()).sum()
            assert float(mass) == pytest.approx(float((made - made.max()).double().exp().sum()), rel=1e-6)


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
@pytest.mark.parametrize(
    ("vocab", "spread", "grid"), [(300, 3.0, 0.0), (300, 3.0, 1.0), (BLOCK + 904, 3.0, 0.0), (BLOCK + 904, 0.5, 0.0)]
)
def test_filters_keep_what_the_sampler_keeps(sampling: Sampling, vocab: int, spread: float, grid: float) -> None:
    """The same support and probabilities; `grid` rounds logits so that most of them have equals."""
    logits = random_logits(1, vocab, 17, spread)
    if grid:
        logits = (logits / grid).round() * grid
    state, scored = started(vocab, sampling), Scored.create(ROWS, vocab, DEVICE)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    process(logits.to(DEVICE), state, 0, scored, 1, vocab)
    choose(scored, state, 0, 1, chosen)
    sampler, history = Sampler(sampling), History(PROMPT)
    scores = sampler.scores(logits[0], history)
    expected = sampler.probabilities(scores)
    made = probabilities(scored, 0, vocab)
    assert torch.equal(made > 0, expected > 0)
    torch.testing.assert_close(made.double(), expected, rtol=2e-5, atol=1e-9)
    assert int(chosen[0]) == sampler.choose(logits[0], len(PROMPT), history)


@pytest.mark.parametrize(
    "sampling", [SAMPLED, replace(SAMPLED, temperature=0.3), PENALTIES], ids=["T 0.9", "T 0.3", "greedy"]
)
def test_choices_are_the_samplers(sampling: Sampling) -> None:
    vocab, logits = BLOCK + 904, random_logits(ROWS, BLOCK + 904, 3)
    state, scored = started(vocab, sampling), Scored.create(ROWS, vocab, DEVICE)
    fed = [int(i) for i in torch.randint(vocab, (ROWS - 1,), generator=torch.Generator().manual_seed(1))]
    feed(state, fed)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    process(logits.to(DEVICE), state, 0, scored, ROWS, vocab)
    choose(scored, state, 0, ROWS, chosen)
    sampler = Sampler(sampling)
    expected = [sampler.choose(logits[r], len(PROMPT) + r, h) for r, h in enumerate(histories(fed))]
    assert chosen[:ROWS].tolist() == expected


@pytest.mark.rotated(3)
@pytest.mark.parametrize(("sampling", "counts"), [(SAMPLED, range(1, 17)), (EVERYTHING, (5,)), (PENALTIES, (3,))])
def test_rows_are_alone(sampling: Sampling, counts: Sequence[int]) -> None:
    vocab, logits = 300, random_logits(ROWS, 300, 4).to(DEVICE)
    draft = random_logits(ROWS, 300, 5).to(DEVICE)
    state = started(vocab, sampling, "ratio")
    feed(state, [(7 * i) % vocab for i in range(1, ROWS)])
    theirs = Scored.create(ROWS, vocab, DEVICE)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    process(draft, state, 0, theirs, ROWS, vocab)
    choose(theirs, state, 0, ROWS, chosen)

    def run(rows: int) -> list[Tensor]:
        scored = Scored.create(ROWS, vocab, DEVICE)
        chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
        process(logits[:rows], state, 0, scored, rows, vocab)
        judge(scored, state, rows, chosen, theirs)
        return [t[:rows] for t in (*scored, chosen)]

    together = run(ROWS)
    for rows in counts:
        for mine, all_rows in zip(run(rows), together, strict=True):
            assert torch.equal(mine, all_rows[:rows])
    for row in (0, 1, 9, 15):
        scored, alone = Scored.create(1, vocab, DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
        process(logits[row : row + 1], state, row, scored, 1, vocab)
        choose(scored, state, row, 1, alone)
        for mine, all_rows in zip(scored, together, strict=False):
            assert torch.equal(mine, all_rows[row : row + 1])


def only(logits: Tensor, sampling: Sampling, columns: int | None = None, vocab: int | None = None) -> int:
    """The token chosen from one row of logits [V]."""
    vocab = vocab or logits.shape[0]
    state, scored = started(vocab, sampling), Scored.create(1, max(vocab, logits.shape[0]), DEVICE)
    chosen = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    process(logits[None].to(DEVICE), state, 0, scored, 1, columns or logits.shape[0])
    choose(scored, state, 0, 1, chosen)
    return int(chosen)


def test_greedy_takes_the_lowest_of_equals() -> None:
    logits = torch.zeros(2 * BLOCK)
    logits[[BLOCK + 3, BLOCK - 1, 77]] = 1.0
    assert only(logits, Sampling()) == 77
    logits[77] = 0.0
    assert only(logits, Sampling()) == BLOCK - 1
    logits[:] = -0.0
    logits[9] = 0.0
    assert only(logits, Sampling()) == 0


def test_minus_zero_is_zero() -> None:
    """Filters compare bits; both zeros are the first of equals here, and top-k keeps them."""
    logits = torch.full((40,), -1.0)
    logits[[3, 9]] = torch.tensor([-0.0, 0.0])
    state, scored = started(40, replace(SAMPLED, top_k=1)), Scored.create(1, 40, DEVICE)
    process(logits[None].to(DEVICE), state, 0, scored, 1, 40)
    choose(scored, state, 0, 1, torch.zeros(1, dtype=torch.int32, device=DEVICE))
    assert probabilities(scored, 0, 40).nonzero()[:, 0].tolist() == [3, 9]


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, TOP_K, TOP_P, MIN_P], ids=str)
def test_what_is_not_a_number_is_never_chosen(sampling: Sampling) -> None:
    logits = torch.full((40,), torch.nan)
    assert only(logits, sampling) == 0
    logits[23] = -5.0
    assert only(logits, sampling) == 23
    assert only(torch.full((40,), -torch.inf), sampling) == 0
    logits[11] = torch.inf
    assert only(logits, sampling) == 11


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, TOP_P], ids=["greedy", "T", "top-p"])
def test_columns_without_a_token_are_never_chosen(sampling: Sampling) -> None:
    logits = random_logits(1, 64, 8)[0]
    logits[50:] = 1e6
    assert only(logits, sampling, columns=50, vocab=50) == only(logits[:50], sampling)
    assert only(logits, sampling, columns=50, vocab=60) < 50
    # A draft model with fewer tokens than the target.
    assert only(logits[:50], sampling, vocab=5000) == only(logits[:50], sampling)


def judged(
    vocab: int, sampling: Sampling, acceptance: Acceptance, sampled: bool, seed: int, n: int = 5
) -> tuple[list[int], list[int]]:
    """A step with random target and draft logits: accepted, tested, token by the device, and by the host."""
    logits = random_logits(n + 1, vocab, 2 * seed, 2.5)
    draft_logits = logits[:n] + random_logits(n, vocab, 2 * seed + 1, 1.0)
    state = started(vocab, replace(sampling, seed=seed), acceptance)
    theirs, ours = Scored.create(ROWS, vocab, DEVICE), Scored.create(ROWS, vocab, DEVICE)
    chosen = torch.full((ROWS + 1,), -7, dtype=torch.int32, device=DEVICE)
    sampler, history, draft = Sampler(replace(sampling, seed=seed)), History(PROMPT), Draft()
    laws = []
    for i in range(n):
        scores = sampler.scores(draft_logits[i], history)
        laws.append(sampler.probabilities(scores))
        stream = noise.LATER + i if acceptance == "block" and i else noise.TOKEN
        token = sampler.pick(scores, len(PROMPT) + i, stream) if sampled else (int(scores.argmax()) + i // 4) % vocab
        if sampled:
            state.node.fill_(i)
            process(draft_logits[i : i + 1].to(DEVICE), state, 0, theirs, 1, vocab)
            choose(theirs, state, 0, 1, state.fed[1:])
            assert int(state.fed[i + 1]) == token
        draft.tokens.append(token)
        history.push(token)
    draft.q = laws if sampled and acceptance != "coupled" else []
    feed(state, draft.tokens)
    state.node.zero_()
    process(logits.to(DEVICE), state, 0, ours, n + 1, vocab)
    if sampled and acceptance == "block" and not sampling.greedy:
        judge_block(ours, state, n + 1, chosen, theirs)
    else:
        judge(ours, state, n + 1, chosen, theirs if sampled else None)
    commit(chosen, state, state.fed.new_zeros(2), state.fed.new_zeros(16))
    judged = host_judge(logits, draft, len(PROMPT), sampler, History(PROMPT), acceptance)
    accepted, tested, emitted, *tokens = state.result[: -ROWS - 1].tolist()
    assert emitted == accepted + 1
    assert tokens[:accepted] == draft.tokens[:accepted]
    return [accepted, tested, tokens[accepted]], [len(judged.path), judged.tested, judged.token]


@pytest.mark.rotated(3)
@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "one-hot"])
@pytest.mark.parametrize("acceptance", ACCEPTANCES)
def test_verdicts_are_the_hosts(acceptance: Acceptance, sampled: bool) -> None:
    outcomes: Counter[int] = Counter()
    for seed in range(14):
        ours, theirs = judged((8, 40)[seed % 2], SAMPLED, acceptance, sampled, seed)
        assert ours == theirs
        outcomes[ours[0]] += 1
    for i, sampling in enumerate((EVERYTHING, TOP_P, replace(PENALTIES, top_k=3))):
        ours, theirs = judged(40, sampling, acceptance, sampled, 100 + i)
        assert ours == theirs
    assert len(outcomes) > 2, "too few different outcomes to tell anything"


def law_of_first(acceptance: Acceptance, steps: int) -> tuple[Tensor, Tensor, float, Tensor, Tensor]:
    """By the host's judge with the device's noise: counts of the first token and of the bonus, acceptance, p, q."""
    size = 6
    logits = random_logits(2, size, 21, 1.5)
    p = logits[0].double().softmax(-1)
    q_logits = logits[0] + random_logits(1, size, 22, 1.0)[0]
    sampler, history = Sampler(Sampling(seed=77, temperature=1.0)), History([])
    first, bonus, kept = torch.zeros(size), torch.zeros(size), 0
    q = q_logits.double().softmax(-1)
    for step in range(steps):
        drafted = sampler.pick(q_logits, 2 * step)
        draft = Draft([drafted], q=[q])
        judged = host_judge(logits, draft, 2 * step, sampler, history, acceptance)
        kept += len(judged.path)
        first[drafted if judged.path else judged.token] += 1
        if judged.path:
            bonus[judged.token] += 1
    return first, bonus, kept / steps, p, q


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("acceptance", ACCEPTANCES)
def test_streams_leave_the_targets_law(acceptance: Acceptance) -> None:
    """Chi-square of the first token and the bonus over 20,000 steps; a shift of 0.03 is found with power > 0.99.

    The draft, the ratio test and the residual draw from streams of one key: they must not know of each other.
    """
    first, bonus, rate, p, q = law_of_first(acceptance, 8_000)
    law = random_logits(2, 6, 21, 1.5)[1].double().softmax(-1)
    assert chisquare(first.numpy(), (p * first.sum()).numpy()).pvalue > 1e-3
    assert chisquare(bonus.numpy(), (law * bonus.sum()).numpy()).pvalue > 1e-3
    distance = float((p - q).abs().sum() / 2)
    error = 4 * (0.25 / 8_000) ** 0.5
    if acceptance != "coupled":
        assert abs(rate - (1 - distance)) < error
    else:
        # Daliri, Musco, Suresh 2024, theorem 3; and the exact rate of Gumbel coupling.
        exact = sum(1 / float(torch.maximum(p / p[i], q / q[i]).sum()) for i in range(6))
        assert abs(rate - exact) < error
        assert rate > (1 - distance) / (1 + distance) - error


class Model:
    """Logits that depend on the position and the last two tokens."""

    def __init__(self, vocab: int, seed: int) -> None:
        self.vocab, self.seed = vocab, seed

    def __call__(self, text: Sequence[int]) -> Tensor:
        return random_logits(1, self.vocab, hash((self.seed, len(text), *text[-2:])) % 2**31, 2.0)[0]


def write(
    model: Model,
    sampling: Sampling,
    acceptance: Acceptance,
    eos: Sequence[int],
    drafts: Callable[[list[int]], list[int]],
    size: int,
) -> tuple[list[int], VerifyState]:
    """Write at least `size` tokens, or to the end of the text, with what `drafts` proposes for the text so far."""
    state = started(model.vocab, sampling, acceptance, eos)
    scored, text = Scored.create(ROWS, model.vocab, DEVICE), list(PROMPT)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    while len(text) < len(PROMPT) + size:
        drafted = drafts(text)
        feed(state, drafted)
        logits = torch.stack([model([*text, *drafted[:i]]) for i in range(len(drafted) + 1)])
        process(logits.to(DEVICE), state, 0, scored, len(logits), model.vocab)
        judge(scored, state, len(logits), chosen, None)
        commit(chosen, state, state.fed.new_zeros(2), state.fed.new_zeros(16))
        accepted, tested, emitted, *tokens = state.result[: -ROWS - 1].tolist()
        assert 0 <= accepted <= tested <= len(drafted)
        assert tokens[emitted:] == [-1] * (len(tokens) - emitted)
        text += tokens[:emitted]
        assert int(state.length) == len(text) - 1
        assert int(state.fed[0]) == text[-1]
        if text[-1] in eos:
            break
    return text[len(PROMPT) :], state


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "sampling", [Sampling(), PENALTIES, SAMPLED, EVERYTHING, TOP_P], ids=["greedy", "penal", "T", "all", "p"]
)
def test_drafting_never_changes_the_text(sampling: Sampling) -> None:
    vocab, size = 40, 16
    model, rng = Model(vocab, 5), random.Random(3)
    plain, state = write(model, sampling, "coupled", (), lambda _: [], size)
    # What the host writes with the same noise.
    sampler, history, host = Sampler(sampling), History(PROMPT), list(PROMPT)
    for _ in range(size):
        host.append(sampler.choose(model(host), len(host), history))
        history.push(host[-1])
    assert plain == host[len(PROMPT) :]
    assert state.counts.tolist() == torch.bincount(torch.tensor(plain), minlength=vocab).tolist()

    def guess(text: list[int]) -> list[int]:
        right = [*plain, *range(vocab)][len(text) - len(PROMPT) :][: rng.randrange(6)]
        return [t if rng.random() < 0.8 else rng.randrange(vocab) for t in right]

    drafted, state = write(model, sampling, "coupled", (), guess, size)
    assert drafted[:size] == plain
    assert state.counts.tolist() == torch.bincount(torch.tensor(drafted), minlength=vocab).tolist()
    # The end of the text inside an accepted block.
    end = plain[9]
    ended, _ = write(model, sampling, "coupled", (39, end), lambda text: plain[len(text) - len(PROMPT) :][:6], size)
    assert ended == plain[: min(plain.index(t) for t in (end, 39) if t in plain) + 1]


def test_choosing_and_judging_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two compiled programs might contract sums differently, and a drafted text not be the plain one."""
    kernel, launches = choosing._choose, []

    class Recorder:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*arguments: object, **constants: object) -> None:
                values = dict(zip(kernel.arg_names, arguments, strict=False))
                kinds = [(type(one), getattr(one, "dtype", None)) for _, one in flat(values)]
                launches.append(
                    (kinds, [values["target"].strides, values["draft"].strides, values["shape"]], constants)
                )
                kernel[grid](*arguments, **constants)

            return launch

    monkeypatch.setattr(choosing, "_choose", Recorder())
    state, scored, theirs = (
        started(40, SAMPLED, "ratio"),
        Scored.create(ROWS, 40, DEVICE),
        Scored.create(ROWS, 40, DEVICE),
    )
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    logits = random_logits(ROWS, 40, 9).to(DEVICE)
    for each in (scored, theirs):
        process(logits, state, 0, each, ROWS, 40)
    feed(state, [1])
    choose(theirs, state, 0, ROWS, chosen)
    judge(scored, state, 2, chosen, None)
    judge(scored, state, 2, chosen, theirs)
    choose(theirs, GrowthState.create(state, 4, 15).step, 0, 4, chosen)
    assert len(launches) == 4
    assert all(launch == launches[0] for launch in launches)
    assert not any(kind is type(None) for kind, _ in launches[0][0]), "None compiles another program"
    runtime = {"purpose", "first_row", "vocab"}
    assert runtime <= set(kernel.kwargs["do_not_specialize"] if not GPU else runtime)


@pytest.mark.skipif(GPU, reason="kernels run on the GPU here")
@pytest.mark.parametrize("sampling", [TOP_P, replace(TOP_P, top_k=40)], ids=str)
def test_few_candidates_are_halved_without_reading_them_again(
    sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 30 halvings of up to two filters would each read tokens and scores."""
    from triton.runtime.interpreter import InterpreterBuilder

    state, scored = started(300, sampling), Scored.create(1, 300, DEVICE)
    process(random_logits(1, 300, 17), state, 0, scored, 1, 300)
    reads, read = [], InterpreterBuilder.create_masked_load

    def counted(self: object, pointers: object, *rest: object) -> object:
        reads.append(pointers)
        return read(self, pointers, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", counted)
    choose(scored, state, 0, 1, torch.zeros(1, dtype=torch.int32))
    assert len(reads) < 40


@pytest.mark.skipif(GPU, reason="kernels run on the GPU here")
def test_intervals_of_top_k_are_quartered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 bits by 16 sums, one waiting for the other, and the candidates' own interval by fewer still."""
    from triton.runtime.interpreter import ReduceOps

    state, scored = started(300, TOP_K), Scored.create(1, 300, DEVICE)
    process(random_logits(1, 300, 17), state, 0, scored, 1, 300)
    sums, apply = [], ReduceOps.apply

    def counted(self: object, operand: object) -> object:
        sums.append(operand)
        return apply(self, operand)

    monkeypatch.setattr(ReduceOps, "apply", counted)
    choose(scored, state, 0, 1, torch.zeros(1, dtype=torch.int32))
    assert len(sums) < 56, "halved, 78 wait for each other"


def test_greedy_by_ratio_is_greedy() -> None:
    model = Model(40, 6)
    plain, _ = write(model, Sampling(), "coupled", (), lambda _: [], 12)
    drafted, _ = write(model, Sampling(), "ratio", (), lambda text: plain[len(text) - len(PROMPT) :][:4] or [3], 12)
    assert drafted[:12] == plain


def test_commit() -> None:
    """Against the rule in Python: random drafts, choices and ends, tokens that repeat."""
    rng = random.Random(1)
    for _ in range(60):
        n, eos = rng.randrange(16), rng.sample(range(9), rng.randrange(3))
        state = started(9, Sampling(), eos=eos)
        drafted = [rng.randrange(9) for _ in range(n)]
        chosen = [t if rng.random() < 0.85 else rng.randrange(9) for t in [*drafted, *[5] * (17 - n)]]
        feed(state, drafted)
        state.counts.fill_(2)
        state.likeliest.copy_(torch.arange(200, 217))
        tail, recent, fed = state.fed.new_full((3,), 7), state.fed.new_tensor(range(100, 116)), state.fed.tolist()
        commit(torch.tensor(chosen, dtype=torch.int32, device=DEVICE), state, tail, recent)
        accepted = next((i for i in range(n) if chosen[i] != drafted[i]), n)
        tokens = chosen[: accepted + 1]
        end = next((i for i, t in enumerate(tokens) if t in eos), accepted)
        tokens = tokens[: end + 1]
        tested = min(n, accepted + 1)
        nodes = [*range(accepted + 1), *[-1] * (16 - accepted)]
        assert state.result.tolist() == [accepted, tested, len(tokens), *tokens, *[-1] * (17 - len(tokens)), *nodes]
        assert state.report[37:].tolist() == [n, *fed, *state.parents.tolist(), *range(200, 217)]
        assert tail.tolist() == [*[PROMPT[-1], *tokens][-2:], 7]
        assert recent.tolist() == [*range(100, 116), *tokens][-16:]
        assert int(state.length) == len(PROMPT) - 1 + len(tokens)
        assert int(state.fed[0]) == tokens[-1]
        assert state.counts.tolist() == [2 + tokens.count(t) for t in range(9)]


def test_a_dropped_step_leaves_nothing() -> None:
    model = Model(30, 9)
    text, state = write(model, PENALTIES, "coupled", (), lambda _: [1, 2], 8)
    kept = [*PROMPT, *text[:5]]
    again = started(30, PENALTIES)
    again.place(kept, len(PROMPT))
    state.place(kept, len(PROMPT))
    for mine, fresh in ((state.counts, again.counts), (state.length, again.length), (state.fed[:1], again.fed[:1])):
        assert torch.equal(mine, fresh)
    assert state.counts.sum() == 5


def test_nothing_moves() -> None:
    """Captured graphs hold addresses."""
    state = VerifyState.create(300, ROWS, DEVICE)
    tensors = list(state)
    before = [t.data_ptr() for t in tensors]
    state.set_sampling(EVERYTHING)
    state.set_acceptance("ratio")
    state.begin(PROMPT, [1, 2])
    state.place([*PROMPT, 4, 5], len(PROMPT))
    state.set_tree([0, 0, 1])
    assert [t.data_ptr() for t in tensors] == before
    assert all(any(t is u for u in tensors) for t in state.tensors())


def test_too_many_ends_are_said() -> None:
    with pytest.raises(ModelError, match=r"17 end-of-text tokens.*16 at most.*CPU"):
        started(30, Sampling(), eos=range(17))


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, PENALTIES, *FILTERS], ids=str)
def test_qwen3_on_the_device(sampling: Sampling) -> None:
    vocab = 151_936
    logits = random_logits(ROWS, vocab, 31)
    state, scored = started(vocab, sampling), Scored.create(ROWS, vocab, DEVICE)
    fed = [int(i) for i in torch.randint(vocab, (ROWS - 1,), generator=torch.Generator().manual_seed(1))]
    feed(state, fed)
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    process(logits.to(DEVICE), state, 0, scored, ROWS, vocab)
    judge(scored, state, ROWS, chosen, None)
    sampler = Sampler(sampling)
    for row, history in enumerate(histories(fed)):
        assert int(chosen[row]) == sampler.choose(logits[row], len(PROMPT) + row, history)
        if not sampler.greedy:
            expected = sampler.probabilities(sampler.scores(logits[row], history))
            made = probabilities(scored, row, vocab)
            # A vocabulary so large has tokens whose share of top-p is decided by the last bit: few, and improbable.
            differs = (made > 0) != (expected > 0)
            assert int(differs.sum()) <= 2
            torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("sampled", [True, False])
def test_many_verdicts_on_the_device(sampled: bool) -> None:
    for seed in range(400):
        for acceptance in ("ratio", "block"):
            ours, theirs = judged((8, 40, 3000)[seed % 3], (SAMPLED, EVERYTHING)[seed % 2], acceptance, sampled, seed)
            assert ours == theirs


@pytest.mark.slow
@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    ceilings = {
        "process": (128, 4096, 0),
        "choose and judge": (255, 16_384, 284),
        "block": (192, 256, 264),
        "commit": (72, 256, 0),
        "keep by the step's numbers": (64, 0, 0),
        "keep by a draft's numbers": (64, 0, 0),
    }
    found = compiled.reports("tests.kernels.cases_verify", architectures)
    assert {r.name for r in found} == set(ceilings)
    for report in found:
        registers, shared, instructions_a_token = ceilings[report.name]
        compiled.check_limits(report, registers, shared)
        assert report.instructions_a_weight <= instructions_a_token, report
        assert report.tensor_cores == "", report
