"""Measures perplexity, acceptance of drafts and of prompt lookup, exactness, and the cost of a step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from training.corpus.base import Dialogue
from training.data import Rows
from training.generate import generate
from training.model import Llama
from training.tokenizer import END, encode, token_id


@dataclass(frozen=True)
class Reply:
    """A prompt's tokens and the target's greedy reply."""

    prompt: list[int]
    reply: list[int]


def perplexity(model: Llama, tokenizer: Tokenizer, dialogues: list[Dialogue]) -> dict[str, float]:
    """Perplexity of reply tokens by category and of all."""
    nats: dict[str, float] = {}
    counts: dict[str, int] = {}
    for dialogue in dialogues:
        tokens, wanted = encode(tokenizer, dialogue.messages)
        row, kept = torch.tensor([tokens[:1024]]), torch.tensor(wanted[:1024])
        with torch.no_grad():
            logits, _ = model(row[:, :-1])
        losses = torch.nn.functional.cross_entropy(logits[0], row[0, 1:], reduction="none")[kept[1:]]
        for name in (dialogue.category, "all"):
            nats[name] = nats.get(name, 0.0) + float(losses.sum())
            counts[name] = counts.get(name, 0) + len(losses)
    return {name: math.exp(nats[name] / counts[name]) for name in nats}


def greedy(model: Llama, prompts: list[list[int]], end: int, limit: int = 256, batch: int = 40) -> list[Reply]:
    """Greedy replies, with their end tokens if reached."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    found: dict[int, Reply] = {}
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        replies = generate(model, [prompts[index] for index in chosen], limit, end, [0.0] * len(chosen))
        for index, reply in zip(chosen, replies, strict=True):
            found[index] = Reply(prompts[index], reply if len(reply) == limit else [*reply, end])
    return [found[index] for index in range(len(prompts))]


def draft_guesses(draft: Llama, one: Reply) -> list[int]:
    """The draft's greedy proposal for each token of the reply, given the true tokens before it."""
    tokens = torch.tensor([one.prompt + one.reply])
    with torch.no_grad():
        logits, _ = draft(tokens[:, :-1])
    guesses: list[int] = logits[0, len(one.prompt) - 1 :].argmax(-1).tolist()
    return guesses


def passes_with_draft(draft: Llama, one: Reply, length: int) -> tuple[int, int]:
    """Tokens of the reply, and target passes of greedy speculation with the draft."""
    right = [guess == token for guess, token in zip(draft_guesses(draft, one), one.reply, strict=True)]
    at = passes = 0
    while at < len(right):
        end = at
        while end < len(right) and end < at + length and right[end]:
            end += 1
        at, passes = end + 1, passes + 1
    return len(right), passes


def lookup(tokens: list[int], longest: int = 10, shortest: int = 2, limit: int = 10) -> list[int]:
    """Tokens after the most recent earlier occurrence of the longest suffix."""
    for size in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        suffix = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == suffix:
                return tokens[start + size : start + size + limit]
    return []


def passes_with_lookup(one: Reply) -> tuple[int, int]:
    """Tokens of the reply, and target passes of greedy prompt lookup."""
    at = passes = 0
    while at < len(one.reply):
        proposal = lookup(one.prompt + one.reply[:at])
        rest = one.reply[at:]
        same = 0
        while same < min(len(proposal), len(rest)) and proposal[same] == rest[same]:
            same += 1
        at, passes = at + same + 1, passes + 1
    return len(one.reply), passes


def agreement(target: Llama, draft: Llama, rows: Rows, spans: list[tuple[int, int]], batch: int = 8) -> list[float]:
    """Share of reply tokens with the same likeliest token in both models, by span of positions in a row."""
    same = torch.zeros(rows.tokens.shape[1] - 1)
    seen = torch.zeros(rows.tokens.shape[1] - 1)
    with torch.no_grad():
        for start in range(0, len(rows.tokens), batch):
            tokens, wanted = rows.tokens[start : start + batch], rows.replies[start : start + batch, 1:]
            chosen, guessed = (model(tokens[:, :-1])[0].argmax(-1) for model in (target, draft))
            same += ((chosen == guessed) & wanted).sum(0)
            seen += wanted.sum(0)
    return [float(same[low:high].sum() / seen[low:high].sum()) for low, high in spans]


def exact(model: Llama, tokenizer: Tokenizer, dialogues: list[Dialogue]) -> float:
    """Share of first replies that the model gives word for word."""
    end = token_id(tokenizer, END)
    cut = [next(i for i, m in enumerate(d.messages) if m["role"] == "assistant") for d in dialogues]
    prompts = [encode(tokenizer, d.messages[:at], reply=True)[0] for d, at in zip(dialogues, cut, strict=True)]
    replies = greedy(model, prompts, end, limit=400)
    said = [tokenizer.decode(one.reply, skip_special_tokens=True) for one in replies]
    return sum(d.messages[at]["content"] == text for d, at, text in zip(dialogues, cut, said, strict=True)) / len(
        dialogues
    )


def step_cost(model: Llama, context: int = 256, rounds: int = 60) -> float:
    """Median milliseconds of a step of one token."""
    times = []
    with torch.no_grad():
        _, past = model(torch.zeros(1, context, dtype=torch.long))
        token = torch.zeros(1, 1, dtype=torch.long)
        for _ in range(rounds):
            began = time.perf_counter()
            model(token, past)
            times.append(time.perf_counter() - began)
    return 1000 * sorted(times)[rounds // 2]
