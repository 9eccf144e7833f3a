"""Continues training the shipped pair: the target also learns the early exit, the draft distils more of the target.

python -m training.further target --steps 1300
python -m training.further draft --steps 1500
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from training import tokenizer
from training.data import pack
from training.distil import distillation_loss
from training.early_exit import exiting_loss
from training.export import export, load
from training.heads import TARGET_GUIDE
from training.make_demo import DEMO, HERE
from training.train import Lessons, Recipe, train

LENGTH = 512
DIALOGUES = 40_000


def main() -> None:
    """Train one of the models from the shipped weights, and replace them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("target", "draft"))
    parser.add_argument("--steps", type=int, required=True, help="steps of 4,096 tokens")
    parser.add_argument("--folder", type=Path, default=HERE / "runs" / "further", help="where checkpoints are kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    named = tokenizer.load(DEMO / options.model / "tokenizer.json")
    target, first = load(DEMO / "target", options.device), load(DEMO / options.model, options.device)
    rows, held_out = pack(named, 177, DIALOGUES, LENGTH), pack(named, 3, 500, LENGTH, evaluation=True)
    if options.model == "target":
        recipe = Recipe(options.steps, 4096, decay=0.8, muon_rate=0.006, adam_rate=0.0012)
        loss = exiting_loss(TARGET_GUIDE)
    else:
        recipe = Recipe(options.steps, 4096, decay=0.85, warmup=60, muon_rate=0.01, adam_rate=0.002, prompt_weight=0.0)
        loss = distillation_loss(target)
    lessons = Lessons(rows, rows, held_out, loss, loss)
    pad = tokenizer.token_id(named, tokenizer.PAD)
    made = train(first.shape, recipe, lessons, options.folder / options.model, options.device, pad, first)
    export(made.eval(), named, DEMO / options.model)


if __name__ == "__main__":
    main()
