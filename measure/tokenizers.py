"""Measures cross-tokenizer drafting beside plain decoding in the same run.

    python -m measure.tokenizers [--prompts 40] [--temperature 0] [--strategy draft] [--entries 1024 8192]
                                 [--steps 700] [--drafts FOLDER] [--length 5]

The target is the demo pair's. Its own draft is measured as it is, and with permuted ids, which shows the cost of
mapping. For other tokenizers small models are trained on the corpus by one recipe: one with the target's tokenizer, and
one with each number of `--entries`. `--drafts` keeps them from run to run. Each is also measured with shared tokens
alone. With `--length` all drafts have this length, so that only times depend on the machine.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from measure.other_drafts import permuted, trained
from specchat.bench.contender import BenchPrompt, Run
from specchat.bench.interleaved import measure
from specchat.bench.ours import Ours
from specchat.bench.prompts import read_prompts, shipped_prompts, spread
from specchat.bench.summary import Spread
from specchat.config.paths import demo_model
from specchat.engine.cross_tokenizer.model import CrossTokenizerModel
from specchat.engine.hardware.threads import leave_one_core
from specchat.engine.loading import load
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.session import Session

TOKENS = 96
PLAIN, SHIPPED = "plain", "shipped draft"


def drafts(folder: Path, entries: Sequence[int], steps: int) -> dict[str, Path]:
    """Folders of drafts by name; missing ones are trained."""
    found = {SHIPPED: demo_model("draft"), "its ids moved": permuted(folder / "permuted", demo_model("draft"))}
    for count in (None, *entries):
        name = "trained, the target's" if count is None else f"trained, {count} entries"
        place = folder / f"{count or 'own'}-{steps}"
        found[name] = place if (place / "model.safetensors").exists() else trained(place, count, steps)
    return found


def session(draft: Path, whole: bool) -> Session:
    """The demo's target with this draft; `whole` drafts end only at their limit."""
    target, small = (ModelSource(path=str(folder), device="cpu") for folder in (demo_model("target"), draft))
    made = load(PairSpec("demo", "Demo", target, small), lambda _: None)
    made.runner.executor.policies.off = whole
    return made


def shared_alone(made: Session) -> Session:
    """A session whose draft proposes only shared tokens."""
    assert made.runner.draft is not None
    model = made.runner.draft.model
    assert isinstance(model, CrossTokenizerModel)
    shared = {token: path for token, path in model.vocabulary_map.to_target.items() if len(path) == 1}
    narrow = replace(model.vocabulary_map, to_target=shared, continuations={}, spelled={})
    made.runner.draft.model = CrossTokenizerModel(model.model, narrow, model.vocab)
    return made


def run(folders: Mapping[str, Path], prompts: int, strategy: str, temperature: float, length: int | None) -> None:
    """Answer the prompts with all contenders in turn, and print a line for each."""
    sampling = Sampling(0, temperature=temperature)
    drafting, whole = Speculation.of(strategy, length), length is not None
    first = session(folders[SHIPPED], whole)
    contenders = [Ours(first, Speculation(), sampling), Ours(first, drafting, sampling)]
    contenders[0].name, contenders[1].name = PLAIN, SHIPPED
    for name, folder in folders.items():
        if name == SHIPPED:
            continue
        contenders.append(Ours(session(folder, whole), drafting, sampling))
        contenders[-1].name = name
        if "entries" in name:
            contenders.append(Ours(shared_alone(session(folder, whole)), drafting, sampling))
            contenders[-1].name = f"{name}, shared alone"
    chats = [
        BenchPrompt(chat.id, chat.category, chat.messages, tuple(first.tokenizer.prompt(chat.messages)))
        for chat in spread(read_prompts(shipped_prompts("demo")), prompts)
    ]
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for sample in measure(contenders, chats, 2, TOKENS, lambda _: None, lambda *_: None):
        runs[sample.contender].append(sample.run)
    print(f"{strategy}, temperature {temperature}, {len(chats)} prompts, two replies each of up to {TOKENS} tokens")
    for name, made in runs.items():
        print(_line(name, made, runs[PLAIN]), flush=True)


def _line(name: str, made: Sequence[Run], plain: Sequence[Run]) -> str:
    faster = Spread.of(
        [(one.whole_speed or 1.0) / (base.whole_speed or 1.0) for one, base in zip(made, plain, strict=True)]
    )
    same = sum(one.tokens == base.tokens for one, base in zip(made, plain, strict=True))
    stats = [one.stats for one in made if one.stats is not None and one.stats.num_draft_tokens]
    line = f"{name:>34}: same text {same} of {len(made)}"
    if faster is not None:
        line += f", tokens/s {faster.median:.2f} ({faster.low:.2f}-{faster.high:.2f}) of plain"
    if stats:
        accepted = sum(one.num_accepted_draft_tokens for one in stats)
        line += f", {1 + accepted / sum(one.num_spec_steps for one in stats):.2f} tokens a step"
        line += f", accepted {accepted / sum(one.num_tested_draft_tokens for one in stats):.0%} of tested"
        line += f", {median(one.draft_ms / one.num_draft_tokens for one in stats):.2f} ms a drafted token"
    return line


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--strategy", default="draft")
    parser.add_argument("--entries", type=int, nargs="*", default=[1024, 8192])
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--length", type=int)
    parser.add_argument("--drafts", type=Path)
    options = parser.parse_args()
    leave_one_core()
    with TemporaryDirectory() as folder:
        made = drafts(options.drafts or Path(folder), options.entries, options.steps)
        run(made, options.prompts, options.strategy, options.temperature, options.length)


if __name__ == "__main__":
    main()
