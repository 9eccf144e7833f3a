"""Goes on with the shipped pair: its target is tuned to be left early, its draft learns more of the target.

python -m training.further target --steps 980
python -m training.further draft --steps 1500
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from training import tokenizer
from training.data import pack
from training.distil import distillation_loss
from training.early_exit import exiting_loss
from training.export import export, load
from training.make_demo import DEMO, HERE
from training.model import Llama
from training.train import Lessons, Recipe, train

LENGTH = 512
DIALOGUES = 40_000
TUNED = 0.75
"""What is taken of the target's tune: all of it copies some texts less well, and half of it drafts less."""


def between(one: Llama, other: Llama, share: float) -> dict[str, Tensor]:
    """The weights so far on the way from one model to the other (Wortsman et al. 2022, robust fine-tuning)."""
    return {name: torch.lerp(weight, other.state_dict()[name], share) for name, weight in one.state_dict().items()}


def main() -> None:
    """Trains one of the models from the weights that are shipped, and puts it in their place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("target", "draft"))
    parser.add_argument(
        "--steps", type=int, required=True, help="steps of 2,048 tokens for the target, of 4,096 for the draft"
    )
    parser.add_argument("--folder", type=Path, default=HERE / "runs" / "further", help="where checkpoints are kept")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    named = tokenizer.load(DEMO / options.model / "tokenizer.json")
    target, first = load(DEMO / "target", options.device), load(DEMO / options.model, options.device)
    rows, held_out = pack(named, 177, DIALOGUES, LENGTH), pack(named, 3, 500, LENGTH, evaluation=True)
    if options.model == "target":
        recipe = Recipe(options.steps, 2048, decay=0.6, warmup=30, muon_rate=0.006, adam_rate=0.0012)
        loss = exiting_loss(target)
    else:
        recipe = Recipe(options.steps, 4096, decay=0.85, warmup=60, muon_rate=0.01, adam_rate=0.002, prompt_weight=0.0)
        loss = distillation_loss(target)
    lessons = Lessons(rows, rows, held_out, loss, loss)
    pad = tokenizer.token_id(named, tokenizer.PAD)
    made = train(first.shape, recipe, lessons, options.folder / options.model, options.device, pad, first)
    if options.model == "target":
        made.load_state_dict(between(first, made, TUNED))
    export(made.eval(), named, DEMO / options.model)


if __name__ == "__main__":
    main()
