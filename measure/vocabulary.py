"""Measures draft vocabularies beside the whole one in the same run.

    python -m measure.vocabulary [--prompts 40] [--sizes 2048 1536 1024 768] [--temperature 0]
    python -m measure.vocabulary --shapes qwen2.5-14b [--sizes 65536 32768 16384]
    python -m measure.vocabulary --tokenizer FOLDER --texts CHATS.jsonl

On the demo pair: tokens are counted in the target's replies to every second prompt, and `draft` answers the others with
each size in turn. With `--shapes`: the time of a draft token of a published pair with random weights, after 256 tokens;
the sizes take turns. With `--texts`: the share of texts that each size covers.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from specchat.bench.contender import BenchPrompt, Run
from specchat.bench.interleaved import measure
from specchat.bench.ours import Ours
from specchat.bench.prompts import read_prompts, shipped_prompts, spread
from specchat.bench.published import PUBLISHED
from specchat.bench.summary import Spread
from specchat.bench.synthetic import write_random
from specchat.config.catalog import load_catalog
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Chain
from specchat.engine.decoding.host_loops import HostLoops
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.hardware.threads import leave_one_core
from specchat.engine.loading import load
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.runners.host import host_model
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.frequent_tokens import always, covered, frequent

TOKENS = 96
DRAFTED = 5
PROMPT = 256
ROUNDS = 12
WHOLE = "whole"


def on_the_demo_pair(prompts: int, sizes: Sequence[int], temperature: float) -> None:
    """Count on one half of the prompts, and answer the other half."""
    sampling = Sampling(0, temperature=temperature)
    spec = load_catalog(None).find("demo").spec
    session = load(spec, lambda _: None)
    chats = [
        BenchPrompt(chat.id, chat.category, chat.messages, tuple(session.tokenizer.prompt(chat.messages)))
        for chat in spread(read_prompts(shipped_prompts("demo")), 2 * prompts)
    ]
    plain = Ours(session, Speculation(), sampling)
    replies = [plain.run(prompt, TOKENS).tokens for prompt in chats[::2]]
    judged = [token for prompt in chats[1::2] for token in plain.run(prompt, TOKENS).tokens]
    kept, whole = always(session.tokenizer, session.eos), session.tokenizer.size
    contenders, shares = [Ours(session, Speculation("draft", DRAFTED), sampling)], {WHOLE: 1.0}
    contenders[0].name = WHOLE
    with TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.json"
            tokens = frequent(replies, kept, size, whole)
            write(path, session.tokenizer, tokens)
            with_it = load(replace(spec, draft_vocabulary=str(path)), lambda _: None)
            contenders.append(Ours(with_it, Speculation("draft", DRAFTED), sampling))
            contenders[-1].name = str(size)
            shares[str(size)] = sum(map(set(tokens).__contains__, judged)) / len(judged)
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for sample in measure(contenders, chats[1::2], 2, TOKENS, lambda _: None, lambda *_: None):
        runs[sample.contender].append(sample.run)
    print(f"{sum(map(len, replies))} tokens counted; {len(runs[WHOLE])} replies each, over the whole vocabulary:")
    for name, of_size in runs.items():
        faster = [_speed(run) / _speed(base) for run, base in zip(of_size, runs[WHOLE], strict=True)]
        cheaper = [_draft_ms(run) / _draft_ms(base) for run, base in zip(of_size, runs[WHOLE], strict=True)]
        same = sum(run.tokens == base.tokens for run, base in zip(of_size, runs[WHOLE], strict=True))
        drafted = sum(run.stats.num_spec_steps for run in of_size if run.stats)
        accepted = sum(run.stats.num_accepted_draft_tokens for run in of_size if run.stats)
        print(
            f"{name:>6}: {shares[name]:.1%} of tokens, a drafted token {_spread(cheaper)} of the time, "
            f"{1 + accepted / drafted:.2f} tokens a step, tokens/s {_spread(faster)}, same text {same}",
            flush=True,
        )


def at_shapes(name: str, sizes: Sequence[int]) -> None:
    """Measure the draft of a published pair."""
    leave_one_core()
    config = PUBLISHED[name].draft
    with TemporaryDirectory(prefix="specchat-random-") as folder:
        opened = Checkpoint.open(write_random(Path(folder) / "draft", config, 0))
        made = {WHOLE: _after_a_prompt(opened)}
        for size in sizes:
            made[str(size)] = _after_a_prompt(replace(opened, drafts=tuple(range(size))))
    print(f"{PUBLISHED[name].draft_name}, vocabulary {config.vocab}, {ROUNDS} rounds, ms a drafted token:")
    for temperature in (0.0, 0.7):
        taken: dict[str, list[float]] = {size: [] for size in made}
        for _ in range(ROUNDS + 1):
            for label, drafts in made.items():
                taken[label].append(_drafting_ms(drafts, temperature))
        for label, (_, *times) in taken.items():
            ratios = [ms / of_whole for ms, of_whole in zip(times, taken[WHOLE][1:], strict=True)]
            print(
                f"temperature {temperature}, {label:>6}: {median(times):.1f}, {_spread(ratios)} of the whole",
                flush=True,
            )


def _after_a_prompt(opened: Checkpoint) -> HostLoops:
    """Drafting loops of a model whose cache holds a prompt without its last token."""
    cached = CachedModel(host_model(opened, 2 * PROMPT))
    cached.begin([0] * PROMPT)
    policies = LengthPolicies(StepCosts())
    policies.off = True
    return HostLoops({"draft": cached}, opened.config.vocab, policies)


def _drafting_ms(drafts: HostLoops, temperature: float) -> float:
    """Milliseconds per draft token of a chain of DRAFTED."""
    drafts.begin(ReplyRules(Sampling(0, temperature=temperature)), [0] * PROMPT)
    started = perf_counter()
    drafts.make(Chain("draft", "draft", DRAFTED))
    return 1e3 * (perf_counter() - started) / DRAFTED


def of_texts(tokenizer: Path, texts: Path, sizes: Sequence[int]) -> None:
    """Share of the assistant's tokens in a file of chats that each size covers, counted on the other half."""
    known = Tokenizer.read(tokenizer)
    chats = [json.loads(line)["messages"] for line in texts.read_text(encoding="utf-8").splitlines()]
    said = dict.fromkeys(turn["content"] for chat in chats for turn in chat if turn["role"] == "assistant")
    replies, kept = [known.encode(text) for text in said], always(known, known.eos)
    print(f"{tokenizer.name}, {known.size} tokens, {len(replies)} replies of {sum(map(len, replies))} tokens")
    for size in sizes:
        print(f"{size:>6}: {covered(replies, kept, size, known.size):.1%}")


def _speed(run: Run) -> float:
    return run.whole_speed or 1.0


def _draft_ms(run: Run) -> float:
    """Milliseconds per draft token over all steps."""
    stats = run.stats
    return stats.draft_ms / stats.num_draft_tokens if stats and stats.num_draft_tokens else 1.0


def _spread(values: Sequence[float]) -> str:
    found = Spread.of(values)
    return f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f})" if found else "-"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--prompts", type=int, default=40)
    options.add_argument("--sizes", type=int, nargs="+")
    options.add_argument("--temperature", type=float, default=0.0)
    options.add_argument("--shapes", choices=list(PUBLISHED))
    options.add_argument("--tokenizer", type=Path)
    options.add_argument("--texts", type=Path)
    asked = options.parse_args()
    large = asked.sizes or (65536, 32768, 16384)
    if asked.shapes:
        at_shapes(asked.shapes, large)
    elif asked.texts:
        of_texts(asked.tokenizer, asked.texts, large)
    else:
        on_the_demo_pair(asked.prompts, asked.sizes or (2048, 1536, 1024, 768), asked.temperature)


if __name__ == "__main__":
    main()
