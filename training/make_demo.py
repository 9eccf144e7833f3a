"""Builds the demo pair: corpus, tokenizer, target, sample, draft, export. Each stage reuses its stored result."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import prompts, tokenizer
from training.corpus import public
from training.corpus.mixture import LONG_SHARE
from training.data import Rows, pack
from training.distil import distillation_loss, sample_rows
from training.export import export
from training.heads import DRAFT_GUIDE, TARGET_GUIDE, guided_loss
from training.model import CONTEXT, DRAFT, TARGET, Llama
from training.train import Lessons, Recipe, train

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent / "specchat" / "demo"
DECAY_LONG_SHARE = 0.4
STAGES = ("tokenizer", "corpus", "target", "sample", "draft", "export")


@dataclass(frozen=True)
class Build:
    """Options of one build, and the folder of its results."""

    folder: Path
    device: str
    steps: int
    tokens_a_step: int
    draft_steps: int
    dialogues: int
    samples: int
    processes: int

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, trained on first use."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            tokenizer.train().save(str(path))
        return tokenizer.load(path)

    def rows(
        self, name: str, seed: int, count: int, length: int, *, evaluation: bool = False, long_share: float = LONG_SHARE
    ) -> Rows:
        """Packed rows of a number of dialogues, made on first use."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            pack(
                self.tokenizer(),
                seed,
                count,
                length,
                evaluation=evaluation,
                long_share=long_share,
                processes=self.processes,
            ).save(path)
        return Rows.load(path)

    @property
    def pad(self) -> int:
        """The padding token."""
        return tokenizer.token_id(self.tokenizer(), tokenizer.PAD)

    def corpus(self) -> tuple[Rows, Rows, Rows]:
        """Rows of 512 tokens for the constant phase, of 1024 (mostly long chats) for the decay, and held-out ones."""
        return (
            self.rows("short", 1, self.dialogues, 512),
            self.rows("long", 2, self.dialogues // 6, CONTEXT, long_share=DECAY_LONG_SHARE),
            self.rows("held-out", 3, 500, 512, evaluation=True),
        )

    def target(self) -> Llama:
        """The target, trained for the given steps."""
        short, long, held_out = self.corpus()
        recipe = Recipe(self.steps, self.tokens_a_step)
        guided = guided_loss(TARGET_GUIDE)
        lessons = Lessons(short, long, held_out, constant_loss=guided)
        return train(TARGET, recipe, lessons, self.folder / "target", self.device, self.pad).eval()

    def sample(self) -> Rows:
        """Rows of the target's own replies."""
        path = self.folder / "sampled.npz"
        if not path.exists():
            sample_rows(self.target(), self.tokenizer(), 5, self.samples, CONTEXT, self.device).save(path)
        return Rows.load(path)

    def draft(self) -> Llama:
        """The draft, trained on the corpus, then distilled on the target's replies and more of the corpus."""
        short, long, held_out = self.corpus()
        sampled = self.sample()
        answers = sampled.with_last(2 * len(sampled.tokens), long)
        guided, taught = guided_loss(DRAFT_GUIDE), distillation_loss(self.target())
        lessons = Lessons(short, answers, held_out, constant_loss=guided, decay_loss=taught)
        recipe = Recipe(self.draft_steps, self.tokens_a_step, decay=0.4)
        return train(DRAFT, recipe, lessons, self.folder / "draft", self.device, self.pad).eval()

    def export(self) -> None:
        """Write both models and the held-out prompts to the package."""
        export(self.target(), self.tokenizer(), DEMO / "target")
        export(self.draft(), self.tokenizer(), DEMO / "draft")
        prompts.write(DEMO / "prompts.jsonl")


def main() -> None:
    """Run the stages up to `--until`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", choices=STAGES, default="export", help="the last stage to run")
    parser.add_argument(
        "--folder", type=Path, default=HERE / "runs" / "demo", help="where checkpoints and rows are kept"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=1400, help="steps of the target; a fifth of them decays")
    parser.add_argument("--tokens-a-step", type=int, default=2048)
    parser.add_argument("--draft-steps", type=int, default=1200)
    parser.add_argument("--dialogues", type=int, default=60_000, help="dialogues to train on, about 130 tokens each")
    parser.add_argument("--samples", type=int, default=1200, help="prompts that the target answers for the draft")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads, and processes that write the corpus")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not public.chats():
        print(f"No public texts in {public.folder()}: the corpus is generated text alone.")
    options.folder.mkdir(parents=True, exist_ok=True)
    build = Build(
        options.folder,
        options.device,
        options.steps,
        options.tokens_a_step,
        options.draft_steps,
        options.dialogues,
        options.samples,
        options.threads,
    )
    for stage in STAGES[: STAGES.index(options.until) + 1]:
        print(stage, flush=True)
        getattr(build, stage)()


if __name__ == "__main__":
    main()
