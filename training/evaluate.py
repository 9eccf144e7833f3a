"""Measures the exported pair on held-out dialogues; ``--document`` writes the figures into docs/demo-model.md."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from training import judge, measure
from training.corpus.base import Dialogue, Message
from training.corpus.mixture import WEIGHTS, dialogues
from training.data import pack
from training.export import load
from training.make_demo import DEMO
from training.model import CONTEXT
from training.tokenizer import END, encode, token_id
from training.tokenizer import load as load_tokenizer

PAGE = DEMO.parents[1] / "docs" / "demo-model.md"
BEGIN, FINISH = "<!-- measured: begin -->", "<!-- measured: end -->"
DRAFT_LENGTH = 5
EVALUATION_SEED = 11
DEPTH_SEED = 13


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def first_of(found: list[Dialogue], category: str, count: int) -> list[Dialogue]:
    """The first dialogues of a category."""
    return [dialogue for dialogue in found if dialogue.category == category][:count]


class Evaluation:
    """The exported pair with its test data."""

    def __init__(self, folder: Path, count: int) -> None:
        self.tokenizer = load_tokenizer(folder / "target" / "tokenizer.json")
        self.target, self.draft = load(folder / "target"), load(folder / "draft")
        self.held_out = list(dialogues(EVALUATION_SEED, count, evaluation=True))
        lines = (folder / "prompts.jsonl").read_text("utf-8").splitlines()
        self.prompts = [json.loads(line) for line in lines]
        encoded = [encode(self.tokenizer, prompt["messages"], reply=True)[0] for prompt in self.prompts]
        self.replies = measure.greedy(self.target, encoded, token_id(self.tokenizer, END))

    def sizes(self) -> str:
        """Parameters, bytes and the cost of a step of both models."""
        rows = []
        for name, model in (("target", self.target), ("draft", self.draft)):
            count = sum(parameter.numel() for parameter in model.parameters())
            rows.append([name, f"{count / 1e6:.2f} M", f"{measure.step_cost(model):.2f} ms"])
        ratio = float(rows[0][2].split()[0]) / float(rows[1][2].split()[0])
        return (
            table(["model", "parameters", "one-token step"], rows)
            + f"\n\nThe target's step costs {ratio:.1f} times the draft's."
        )

    def perplexity(self) -> str:
        """Perplexity by category."""
        target = measure.perplexity(self.target, self.tokenizer, self.held_out)
        draft = measure.perplexity(self.draft, self.tokenizer, self.held_out)
        return table(
            ["category", "target", "draft"],
            [[name, f"{target[name]:.2f}", f"{draft[name]:.2f}"] for name in (*WEIGHTS, "all") if name in target],
        )

    def acceptance(self) -> str:
        """Tokens per pass of the target by category, with the draft and with prompt lookup."""
        sums: dict[str, list[int]] = {}
        for prompt, one in zip(self.prompts, self.replies, strict=True):
            figures = [*measure.passes_with_draft(self.draft, one, DRAFT_LENGTH), measure.passes_with_lookup(one)[1]]
            for name in (prompt["category"], "all"):
                sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0, 0]), figures, strict=True)]
        names = [name for name in sums if name != "all"] + ["all"]
        rows = [
            [name, str(sums[name][0]), f"{sums[name][0] / sums[name][1]:.2f}", f"{sums[name][0] / sums[name][2]:.2f}"]
            for name in names
        ]
        return table(["category", "reply tokens", f"draft, length {DRAFT_LENGTH}", "prompt lookup"], rows)

    def depth(self) -> str:
        """Agreement of draft and target early and late in long chats."""
        rows = pack(self.tokenizer, DEPTH_SEED, 150, CONTEXT, evaluation=True, long_share=1.0)
        spans = [(50, 150), (250, 350), (450, 550), (650, 750), (850, 950)]
        found = measure.agreement(self.target, self.draft, rows, spans)
        return table(
            ["tokens before", *(f"{low}-{high}" for low, high in spans)],
            [["draft and target agree", *(f"{100 * share:.0f} %" for share in found)]],
        )

    def by_hand(self) -> str:
        """Share of handwritten prompts answered correctly, by set and kind."""
        rows = []
        for which in judge.SETS:
            sums = judge.counts(judge.answers(self.target, self.tokenizer, judge.prompts(which)))
            rows += [[which, name, str(met), str(count)] for name, (met, count) in sums.items()]
        return table(["set", "kind", "met", "of"], rows)

    def exactness(self) -> str:
        """Share of replies that match word for word."""
        rows = []
        for name in ("copy", "edit", "qa"):
            some = first_of(self.held_out, name, 60)
            rows.append([name, str(len(some)), f"{100 * measure.exact(self.target, self.tokenizer, some):.0f} %"])
        return table(["category", "dialogues", "exact first replies"], rows)

    def examples(self, count: int = 30) -> str:
        """Evenly spaced prompts with the target's unedited greedy replies."""
        parts = []
        for index in range(0, len(self.prompts), len(self.prompts) // count):
            prompt, one = self.prompts[index], self.replies[index]
            said = self.tokenizer.decode(one.reply, skip_special_tokens=True)
            turns = [*prompt["messages"], {"role": "assistant", "content": said}]
            parts.append(f"### {prompt['id']}\n\n" + "\n\n".join(map(_turn, turns)))
        return "\n\n".join(parts[:count])


def _turn(message: Message) -> str:
    """A turn, with its text in a fence that the text does not contain."""
    fence = "````" if "```" in message["content"] else "```"
    return f"**{message['role']}**\n\n{fence}text\n{message['content']}\n{fence}"


def document(text: str) -> None:
    """Write the measured part between the page's two marks."""
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n\n" + text + "\n\n" + FINISH + rest.split(FINISH)[1], "utf-8")


def main() -> None:
    """Print the figures, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--document", action="store_true", help="write docs/demo-model.md")
    parser.add_argument("--folder", type=Path, default=DEMO)
    parser.add_argument("--dialogues", type=int, default=800, help="held-out dialogues to measure on")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = Evaluation(options.folder, options.dialogues)
    parts = [
        ("Size and cost of a step", run.sizes()),
        ("Held-out perplexity of the replies", run.perplexity()),
        ("Tokens for each pass of the target, greedy, on the held-out prompts", run.acceptance()),
        ("Draft and target in long chats", run.depth()),
        ("Prompts written by hand", run.by_hand()),
        ("Replies that are right word for word, greedy, on held-out dialogues", run.exactness()),
        ("Thirty held-out prompts with unedited greedy replies", run.examples()),
    ]
    text = "\n\n".join(f"## {title}\n\n{part}" for title, part in parts)
    if options.document:
        document(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
