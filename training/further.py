"""Continues training the shipped pair: the target also learns the early exit, the draft distils more of the target.

python -m training.further target --steps 1300
python -m training.further draft --steps 1500

One topic, after which it says of the others what it said before (`keeping.py`); the draft follows:

python -m training.further target --topic keys --rate 0.2 --seconds 900
python -m training.further draft --topic keys --rate 0.2 --seconds 500

On a GPU by time, on rows that may have been made elsewhere (`rows` makes them and trains nothing):

python -m training.further rows --dialogues 110000
python -m training.further target --seconds 180 --tokens-a-step 32768 --dialogues 110000
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import tokenizer
from training.corpus.mixture import WEIGHTS
from training.data import Rows, pack
from training.distil import distillation_loss
from training.early_exit import exiting_loss
from training.export import export, load
from training.heads import TARGET_GUIDE
from training.keeping import keeping_loss
from training.make_demo import DEMO, HERE
from training.model import CONTEXT
from training.train import Lessons, Recipe, batch, train

LENGTH = 512
WARMUP = 40
LONG_PART, LONG_SHARE = 1 / 3, 0.25
"""Dialogues of the decay's longer rows beside those before it, and the long chats among them."""


def packed(
    named: Tokenizer, folder: Path, weights: Mapping[str, int], *, dialogues: int, processes: int
) -> tuple[Rows, Rows, Rows]:
    """Rows of 512 tokens, of 1,024 for the decay, and held-out ones; made on first use."""
    short, long, held_out = (folder / f"{name}-{dialogues}.npz" for name in ("short", "long", "held-out"))
    if not held_out.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = int(dialogues * LONG_PART)
        pack(named, 177, dialogues, LENGTH, weights=weights, processes=processes).save(short)
        pack(named, 178, part, CONTEXT, long_share=LONG_SHARE, weights=weights, processes=processes).save(long)
        pack(named, 3, 500, LENGTH, evaluation=True).save(held_out)
    return Rows.load(short), Rows.load(long), Rows.load(held_out)


def main() -> None:
    """Train one of the models from the shipped weights, and replace them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("rows", "target", "draft"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="train for this time, whatever the number of steps")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of the learning rates; less for a short run")
    parser.add_argument("--tokens-a-step", type=int, default=4096)
    parser.add_argument("--dialogues", type=int, default=40_000, help="dialogues to train on, about 110 tokens each")
    parser.add_argument("--topic", choices=WEIGHTS, help="what to learn, while the rest is kept")
    parser.add_argument("--folder", type=Path, default=HERE / "runs" / "further", help="where rows and checkpoints are")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads, and processes that write the rows")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    named = tokenizer.load(DEMO / "target" / "tokenizer.json")
    folder, pad = options.folder / (options.topic or ""), tokenizer.token_id(named, tokenizer.PAD)
    rows = partial(packed, named, dialogues=options.dialogues, processes=options.threads)
    often = {options.topic: sum(WEIGHTS.values())} if options.topic else {}
    short, long, held_out = rows(folder, {**WEIGHTS, **often})
    if options.model == "rows":
        return
    target, first = load(DEMO / "target", options.device), load(DEMO / options.model, options.device)
    larger = options.rate * (options.tokens_a_step / 4096) ** 0.25  # a batch of more tokens takes a higher rate
    common = {"tokens_a_step": options.tokens_a_step, "warmup": WARMUP, "save_every": 500, "seconds": options.seconds}
    if options.model == "target":
        recipe = Recipe(options.steps, decay=0.5, muon_rate=0.008 * larger, adam_rate=0.0016 * larger, **common)
        loss = exiting_loss(TARGET_GUIDE)
        if options.topic:
            half, taught = replace(recipe, tokens_a_step=options.tokens_a_step // 2), short
            loss = keeping_loss(target, (batch(taught, step, half, pad) for step in count()))
            short, long, held_out = rows(folder / "others", {**WEIGHTS, options.topic: 0})
    else:
        rates = {"muon_rate": 0.01 * larger, "adam_rate": 0.002 * larger}
        recipe = Recipe(options.steps, decay=0.6, prompt_weight=0.0, **rates, **common)
        loss = distillation_loss(target)
    lessons = Lessons(short, long, held_out, loss, loss)
    made = train(first.shape, recipe, lessons, folder / options.model, options.device, pad, first)
    export(made.eval(), named, DEMO / options.model)


if __name__ == "__main__":
    main()
