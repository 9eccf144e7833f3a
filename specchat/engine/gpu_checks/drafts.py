"""Kernels of drafts by a model: sampled chains verified by ratio and as blocks, and grown trees."""

from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.acceptance import judge as host_judge
from specchat.engine.decoding.draft import WIDTH, Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.kernels.block import judge_block
from specchat.engine.kernels.candidates import gather
from specchat.engine.kernels.choose import choose, judge
from specchat.engine.kernels.commit import commit
from specchat.engine.kernels.growth import expand, settle
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.protocol.options import Acceptance, Sampling

PROMPT = [1, 2, 3, 2]
VOCAB = 40
ROWS = 16
DRAFTED = 4
SEEDS = 4
SAMPLED = Sampling(temperature=0.9)
LEVELS, KEPT = 3, 9
"""Levels of a tree, and its nodes."""


def sampled(notes: Notes) -> None:
    """Sampled chains, verified by ratio and as a block, against the host."""
    judgements: tuple[Acceptance, ...] = ("ratio", "block")
    for acceptance in judgements:
        for seed in range(SEEDS):
            ours, theirs = judged(acceptance, seed)
            notes.row(what=f"verdict {acceptance}", accepted=ours[0], as_on_the_host=ours == theirs)
            notes.expect(ours == theirs, f"verdict {acceptance}, seed {seed}: {ours} and not {theirs}")


def judged(acceptance: Acceptance, seed: int) -> tuple[list[int], list[int]]:
    """Accepted tokens, tested positions, the next token and the draft, of the device and of the host."""
    device, sampling = place.device(), replace(SAMPLED, seed=seed)
    drawn = 2.5 * torch.randn(2, DRAFTED + 1, VOCAB, generator=torch.Generator().manual_seed(seed))
    logits, drafting = drawn[0], drawn[0] + drawn[1] / 2.5
    state = VerifyState.create(VOCAB, ROWS, device)
    state.set_sampling(sampling)
    state.set_acceptance(acceptance)
    state.begin(PROMPT, ())
    theirs, ours = (Scored.create(ROWS, VOCAB, device) for _ in range(2))
    sampler, history, draft = Sampler(sampling), History(PROMPT), Draft()
    for i in range(DRAFTED):
        scores = sampler.scores(drafting[i], history)
        stream = noise.LATER + i if acceptance == "block" and i else noise.TOKEN
        draft.tokens.append(sampler.pick(scores, len(PROMPT) + i, stream))
        draft.q.append(sampler.probabilities(scores))
        history.push(draft.tokens[-1])
        state.node.fill_(i)
        process(drafting[i : i + 1].to(device), state, 0, theirs, 1, VOCAB)
        choose(theirs, state, 0, 1, state.fed[1:])
    made = state.fed[1 : DRAFTED + 1].tolist()
    state.drafted.fill_(DRAFTED)
    state.node.zero_()
    chosen = torch.zeros(ROWS + 1, dtype=torch.int32, device=device)
    process(logits.to(device), state, 0, ours, DRAFTED + 1, VOCAB)
    (judge_block if acceptance == "block" else judge)(ours, state, DRAFTED + 1, chosen, theirs)
    commit(chosen, state, torch.zeros_like(chosen[:2]), torch.zeros_like(chosen[:16]))
    judged = host_judge(logits, draft, len(PROMPT), sampler, History(PROMPT), acceptance)
    accepted, tested, _, *tokens = state.result[: 4 + DRAFTED].tolist()
    return (
        [accepted, tested, tokens[accepted], *made],
        [len(judged.path), judged.tested, judged.token, *draft.tokens],
    )


def grown(notes: Notes) -> None:
    """A tree of the likeliest paths, against the same in torch."""
    device = place.device()
    table = 3 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(41))
    state, scored = VerifyState.create(VOCAB, ROWS, device), Scored.create(WIDTH, VOCAB, device)
    state.set_sampling(Sampling())
    state.begin(PROMPT, ())
    growth = GrowthState.create(state, WIDTH, LEVELS)
    chosen = torch.zeros(WIDTH, dtype=torch.int32, device=device)
    growth.limit.fill_(KEPT)
    growth.least.fill_(0.0)
    growth.begin()
    for level in range(LEVELS):
        last = growth.frontier.token.tolist() if level else PROMPT[-1:]
        process(table[last].to(device), growth.step, 0, scored, len(last), VOCAB)
        choose(scored, growth.step, 0, len(last), chosen)
        gather(scored, growth, len(last))
        expand(growth, len(last))
    settle(growth, state)
    count = int(state.drafted)
    made = list(zip(state.fed[1 : count + 1].tolist(), state.parents[1 : count + 1].tolist(), strict=True))
    wanted = likeliest(table)
    notes.row(what="grown tree", nodes=count, right=made == wanted)
    notes.expect(made == wanted, f"grown tree: {made} and not {wanted}")


def likeliest(table: Tensor) -> list[tuple[int, int]]:
    """Tokens and parents of the KEPT best nodes; each level extends the best WIDTH nodes of the one before."""
    probabilities = table.double().softmax(-1)
    pool, frontier = list[tuple[float, int, int]](), [(1.0, PROMPT[-1], -1)]
    for _ in range(LEVELS):
        first = len(pool)
        for value, token, at in frontier:
            pool += [
                (value * float(probabilities[token, t]), t, at)
                for t in probabilities[token].topk(WIDTH).indices.tolist()
            ]
        best = sorted(range(first, len(pool)), key=lambda i: -pool[i][0])[:WIDTH]
        frontier = [(pool[at][0], pool[at][1], at) for at in best]
    best_nodes = sorted(sorted(range(len(pool)), key=lambda i: -pool[i][0])[:KEPT])
    return [(pool[i][1], best_nodes.index(pool[i][2]) + 1 if pool[i][2] >= 0 else 0) for i in best_nodes]
