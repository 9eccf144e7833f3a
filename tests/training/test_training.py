"""The parts of training: packing, the schedule, the optimiser, a short run, distillation and the measurements."""

from dataclasses import replace

import torch
from torch.distributions import Categorical, kl_divergence

from specchat.config.paths import demo_model
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.files import get_tensors
from specchat.tune.muon import orthogonal
from training import data, measure
from training.data import Rows, pack_encoded
from training.distil import distillation_loss
from training.early_exit import EARLY_WEIGHT, EXIT_LAYERS, exiting_loss
from training.export import load as from_export
from training.generate import generate
from training.heads import TARGET_GUIDE, Guide, followers, guided_loss, pointed
from training.keeping import TOPIC_WEIGHT, keeping_loss
from training.model import Llama, Shape
from training.tokenizer import load
from training.train import Lessons, Recipe, train, weighted_loss

TINY = Shape(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=40,
    head_dim=16,
)


def rows(length: int = 16) -> Rows:
    tokens = (torch.arange(64)[:, None] + torch.arange(length)[None]) % 30 + 6
    return Rows(tokens, torch.ones(64, length, dtype=torch.bool))


def test_packing_keeps_every_dialogue_whole():
    encoded = [([index % 30 + 6] * (index % 11 + 2), [True] * (index % 11 + 2)) for index in range(200)]
    packed = pack_encoded(iter(encoded), 32, pad=5)
    assert packed.tokens.shape[1] == 32
    assert int((packed.tokens != 5).sum()) == sum(len(tokens) for tokens, _ in encoded)
    assert not packed.replies[packed.tokens == 5].any()


def test_a_corpus_is_the_same_however_many_processes_write_it(monkeypatch):
    monkeypatch.setattr(data, "PART_DIALOGUES", 20)
    tokenizer = load(demo_model("target") / "tokenizer.json")
    alone, together = (data.pack(tokenizer, 1, 50, 512, processes=processes) for processes in (1, 2))
    assert torch.equal(alone.tokens, together.tokens)
    assert torch.equal(alone.replies, together.replies)
    parts = [data.pack(tokenizer, seed, count, 512).tokens for seed, count in ((1, 20), (1001, 20), (2001, 10))]
    assert torch.equal(alone.tokens, torch.cat(parts))


def test_schedule_rises_holds_and_falls():
    recipe = Recipe(steps=100, warmup=10)
    rates = [recipe.rate(step, recipe.done(step, passed=1e9)) for step in range(100)]
    assert rates[0] < rates[9] == rates[79] == 1.0
    assert rates[-1] < 0.1
    assert not recipe.decaying(0.79)
    assert recipe.decaying(0.8)


def test_a_schedule_by_time_does_not_count_steps(tmp_path, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("training.train.time.time", lambda: float(next(clock)))
    recipe = Recipe(steps=1, tokens_a_step=128, seconds=10, save_every=1000)
    train(TINY, recipe, Lessons(rows(), rows(), rows()), tmp_path, "cpu", 5)
    _, stored = get_tensors(tmp_path / "checkpoint.safetensors")
    assert stored == {"step": "9", "seconds": "10.0"}


def test_muon_makes_singular_values_near_one():
    values = torch.linalg.svdvals(orthogonal(torch.randn(2, 24, 40, generator=torch.Generator().manual_seed(3))))
    assert values.max() < 1.5
    assert values.min() > 0.3


def test_training_learns_resumes_and_distils(tmp_path):
    lessons = Lessons(rows(), rows(), rows())
    first = train(TINY, Recipe(steps=40, tokens_a_step=128, save_every=20), lessons, tmp_path / "a", "cpu", 5)
    weights = torch.ones(64, 16)
    assert weighted_loss(first, rows().tokens, weights).item() < 2.0
    again = train(TINY, Recipe(steps=40, tokens_a_step=128, save_every=20), lessons, tmp_path / "a", "cpu", 5)
    assert torch.equal(first.logits(torch.ones(1, 32)), again.logits(torch.ones(1, 32)))
    taught = Lessons(rows(), rows(), rows(), distillation_loss(first), distillation_loss(first))
    draft = train(TINY, Recipe(steps=40, tokens_a_step=128, save_every=20), taught, tmp_path / "b", "cpu", 5)
    assert weighted_loss(draft, rows().tokens, weights).item() < 2.5


def test_a_tune_lets_the_first_layers_say_what_all_say(tmp_path):
    """And leaves what all say as it was."""
    lessons = Lessons(rows(), rows(), rows())
    small = train(TINY, Recipe(steps=60, tokens_a_step=128, save_every=60), lessons, tmp_path / "a", "cpu", 5)
    taught = Llama(replace(TINY, num_hidden_layers=4))
    weights = dict(small.named_parameters())
    with torch.no_grad():
        for name, weight in taught.named_parameters():
            index = int(name.split(".")[2]) if "layers" in name else None
            if index is not None and index < 2:
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    weight.zero_()  # all the work is the last layers'
            else:
                weight.copy_(weights[name if index is None else name.replace(f"s.{index}.", f"s.{index - 2}.")])
    assert early_agreement(taught) < 0.1
    recipe = Recipe(steps=60, tokens_a_step=128, save_every=60, muon_rate=0.01, adam_rate=0.002)
    loss = exiting_loss(Guide({0: (1,)}, {1: 1}, {}))
    tuned = train(taught.shape, recipe, Lessons(rows(), rows(), rows(), loss, loss), tmp_path / "b", "cpu", 5, taught)
    assert early_agreement(tuned) > 0.8
    tokens = rows().tokens
    with torch.no_grad():
        before, after = (model(tokens)[0].argmax(-1) for model in (taught, tuned))
    assert (before == after)[:, 1:].float().mean() > 0.95


def early_agreement(model: Llama) -> float:
    """How often the first layers choose what all choose."""
    tokens = rows().tokens
    with torch.no_grad():
        made, _ = model.states(tokens)
        early, last = (model.logits(made[place]).argmax(-1) for place in (EXIT_LAYERS, -1))
    return float((early == last)[:, 1:].float().mean())


def test_a_topic_is_learnt_as_text_and_the_rest_as_the_model_said_it_before():
    """All layers of this model are before its early exit, whose divergence is an entropy then."""
    torch.manual_seed(5)
    former, model = Llama(TINY), Llama(TINY)
    others, topic = rows().tokens[:3], rows().tokens[8:12].flip(1)
    weights = torch.full_like(others, 0.1, dtype=torch.float32)
    weights[:, 6:] = 1.0  # the request counts for nothing
    with torch.no_grad():
        loss = keeping_loss(former, iter([(topic, torch.ones_like(topic))]))(model, others, weights)
        before, said = (Categorical(logits=one(others[:, :-1])[0][:, 5:]) for one in (former, model))
        learnt = Categorical(logits=model(topic[:, :-1])[0])
    early = EARLY_WEIGHT * (said.entropy().mean() + learnt.entropy().mean())
    expected = kl_divergence(before, said).mean() - TOPIC_WEIGHT * learnt.log_prob(topic[:, 1:]).mean() + early
    torch.testing.assert_close(loss, expected)


def test_followers_are_the_places_that_followed_the_same_token_before():
    found = followers(torch.tensor([[7, 8, 9, 7, 8, 9]]))[0]
    assert found.nonzero().tolist() == [[3, 1], [4, 2]]


def test_a_reply_points_at_what_it_takes_from_the_request():
    """Replace 7 with 8 in 5 6 7 9: only 5, which nothing led to, 8, and 9, which followed another, are pointed at."""
    request, reply = [1, 7, 8, 5, 6, 7, 9], [2, 5, 6, 8, 9]
    other = [1, 5, 8]
    tokens = torch.tensor([other + request + reply])
    replies = torch.tensor([[False] * (3 + 7 + 1) + [True] * 4])
    found = pointed(tokens, replies)[0].nonzero().tolist()
    assert found == [[10, 6], [12, 5], [13, 9]]


def test_guidance_moves_the_heads_to_their_places():
    torch.manual_seed(6)
    model = Llama(replace(TINY, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2))
    tokens = torch.randint(6, 40, (4, 12), generator=torch.Generator().manual_seed(6)).repeat(1, 2)
    weights = torch.ones(tokens.shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = guided_loss(TARGET_GUIDE)(model, tokens, weights)
        losses.append(loss.item() - weighted_loss(model, tokens, weights).item())
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.6 * losses[0]


def test_batched_generation_equals_one_by_one():
    torch.manual_seed(4)
    model = Llama(TINY).eval()
    prompts = [[7, 8, 9], [10, 11, 12, 13, 14], [6]]
    together = generate(model, prompts, 8, end=1, temperatures=[0.0] * 3)
    assert together == [generate(model, [prompt], 8, end=1, temperatures=[0.0])[0] for prompt in prompts]


def test_passes_are_counted_as_speculation_counts_them():
    assert measure.lookup([1, 2, 3, 4, 9, 1, 2, 3]) == [4, 9, 1, 2, 3]
    assert measure.lookup([1, 2, 3]) == []
    tokens, passes = measure.passes_with_lookup(measure.Reply([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]))
    assert (tokens, passes) == (6, 3)
    model = Llama(TINY).eval()
    own = measure.greedy(model, [[7, 8, 9]], end=1, limit=12)[0]
    assert measure.passes_with_draft(model, own, 5) == (len(own.reply), -(-len(own.reply) // 6))


def test_an_exported_model_is_read_as_it_was_trained():
    tokens = [7, 300, 12, 9, 41, 5, 77, 1200]
    with torch.no_grad():
        made = from_export(demo_model("draft"))(torch.tensor([tokens]))[0][0]
    decoder = host_model(Checkpoint.open(demo_model("draft")), 64)
    torch.testing.assert_close(made, decoder.logits(decoder.forward(tokens, 0)), atol=1e-3, rtol=1e-3)
