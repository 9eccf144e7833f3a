"""Tables of estimated steps on a GPU: `python -m measure.gpu_estimate` prints those of docs/measurements.md.

With the file of `specchat doctor --gpu` it prints what its passes took on that card beside their estimate.
"""

import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure.families import LLAMA, LLAMA_GGUF, SIZES, family
from measure.gpu_steps import (
    BUS,
    BUSY,
    CARDS,
    FOR_FAMILIES,
    HOST_MS,
    OF_BANDWIDTH,
    floor_bytes,
    floor_ms,
    launches,
    products,
    prompt_ms,
    step_ms,
)
from specchat.bench.prefetch import LAYERS
from specchat.bench.published import PUBLISHED
from specchat.engine.kernels.gpu_shapes import DENSE_ROWS, LAUNCH_US, PASS_ROWS, PROMPT_ROWS
from specchat.engine.memory.need import Model
from specchat.engine.recipe import Attention, Experts
from specchat.engine.weights.config import ModelConfig

WITH_OWN_LAYER = "Qwen3.5-9B", "Qwen3.8-27B", "Qwen3.6-35B-A3B"
"""Models with a layer for multi-token prediction, dense or with experts."""
DRAFT_VOCABULARY = 32_768
OWN_LAUNCHES, WITH_EXPERTS, CHAINED_US = 88, 127, 1.8
"""Launches of such a pass at most, without and with experts (tests/gpu_net/test_captured_heads.py), and microseconds
of one in a chain (H200)."""


def table(model: Model = LLAMA) -> str:
    """Markdown table of Llama-3.1-8B: a row per card, with the busiest pipe as busy as on the H200 and all the time."""
    columns = "card", "pipe busy", "floor, ms", "plain, ms", "of the floor", "nothing ahead", "8 rows, of plain"
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for card in CARDS:
        for busy in (BUSY, 1.0):
            plain, floor = step_ms(model, card, 1, busy), floor_ms(model, card)
            several = step_ms(model, card, 8, busy) / plain
            ratios = f"{plain / floor:.2f} | {step_ms(model, card, 1, busy, ahead=False) / floor:.2f} | {several:.2f}"
            lines.append(f"| {card.name} | {busy:.0%} | {floor:.2f} | {plain:.2f} | {ratios} |")
    return "\n".join(lines)


def of_gguf() -> str:
    """Markdown table of Llama-3.1-8B in Q4_K_M."""
    return table(LLAMA_GGUF)


def of_families() -> str:
    """Markdown table of other families on one card, with the busiest pipe as busy as on the H200."""
    columns = (
        *("model", "GB a row", "launches", "floor, ms", "plain, ms", "of the floor", "nothing ahead"),
        "8 rows, of plain",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in SIZES:
        model, card = family(name), FOR_FAMILIES
        plain, floor, count = step_ms(model, card, 1, BUSY), floor_ms(model, card), launches(model, card)
        several, read = step_ms(model, card, 8, BUSY) / plain, floor_bytes(model) / 1e9
        total = count + sum(1 for _ in products(model))
        ratios = f"{plain / floor:.2f} | {step_ms(model, card, 1, BUSY, ahead=False) / floor:.2f} | {several:.2f}"
        lines.append(f"| {name} | {read:.2f} | {total} | {floor:.2f} | {plain:.2f} | {ratios} |")
    return "\n".join(lines)


def of_prompts() -> str:
    """Markdown table of tokens a second of short prompts, read in passes of PASS_ROWS rows and of more."""
    widths = PASS_ROWS, DENSE_ROWS, PROMPT_ROWS
    columns = "model", "card", f"passes of {PASS_ROWS}", *(f"of {rows}" for rows in widths[1:]), "gain", "of the last"
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    coder = "Qwen3-Coder-30B-A3B"
    wanted = ("Llama-3.1-8B", LLAMA, 0.0), *((name, family(name), 0.0) for name in (*WITH_OWN_LAYER, coder))
    for name, model, bus in (*wanted, (f"{coder}, experts in main memory", family(coder), BUS)):
        for card in CARDS[1:3]:
            few, many, most = (1e3 * rows / prompt_ms(model, card, rows, bus) for rows in widths)
            taken = most if model.config.recipe.mixtures else many
            figures = f"{few:,.0f} | {many:,.0f} | {most:,.0f} | {taken / few:.1f} | {most / many:.2f}"
            lines.append(f"| {name} | {card.name} | {figures} |")
    return "\n".join(lines)


def drafted_bytes(config: ModelConfig, vocab: int | None = None) -> float:
    """Bytes that a token drafted by the target's own layer (MTP) reads: layer, join, head; bfloat16.

    With `vocab` the head has a draft vocabulary of so many tokens.
    """
    layer = next(layer for layer in config.recipe.layers if isinstance(layer.mixer, Attention))
    if isinstance(layer.feed, Experts):
        layer = replace(layer, feed=replace(layer.feed, count=layer.feed.top))
    read = sum(sum(one.outputs) * one.inputs for one in layer.products)
    return 2 * (read + 2 * config.hidden**2 + (vocab or config.vocab) * config.hidden)


def of_own_layers() -> str:
    """Markdown table of tokens that targets draft by their own layers, whose passes are captured."""
    columns = "model", "tokens proposed", "GB a drafted token", "of them the head's", "ms", "of a plain step"
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in WITH_OWN_LAYER:
        model, card = family(name), FOR_FAMILIES
        for vocab in (model.config.vocab, DRAFT_VOCABULARY):
            read, head = drafted_bytes(model.config, vocab), 2 * vocab * model.config.hidden
            many = WITH_EXPERTS if model.config.recipe.mixtures else OWN_LAUNCHES
            ms = read / card.bandwidth / OF_BANDWIDTH / 1e6 + many * CHAINED_US / 1e3
            share = ms / step_ms(model, card, 1, BUSY)
            lines.append(f"| {name} | {vocab:,} | {read / 1e9:.2f} | {head / 1e9:.2f} | {ms:.1f} | {share:.2f} |")
    return "\n".join(lines)


def beside_measured(report: Path) -> str:
    """Markdown table of the passes that a doctor's report has timed, or a sentence why there is none."""

    def rows_of(check: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(opened.read(f"{check}/rows.json"))
        return found

    try:
        with zipfile.ZipFile(report) as opened:
            gpu, timed = str(rows_of("environment")[0].get("gpu")), rows_of("prefetch")
    except (OSError, zipfile.BadZipFile, KeyError, IndexError, ValueError):
        return f"{report} is no whole file of specchat doctor --gpu: run that again."
    card = next((card for card in CARDS if gpu.endswith(card.name)), None)
    if card is None or not timed:
        why = f"{gpu} is not among CARDS of measure/gpu_steps.py" if card is None else "the check prefetch has no times"
        return f"Nothing of {report} can be compared: {why}."
    columns = (
        f"model, {LAYERS} layers",
        "rows",
        "estimated, us",
        "measured",
        "of the estimate",
        "nothing ahead",
        "measured",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in timed:
        model, rows = Model(PUBLISHED[row["model"]].cut(LAYERS).target, "cuda", "nf4"), row["rows"]
        # A copy of the logits is in place of three launches that choose a token, and nothing waits for the host.
        less = 2 * LAUNCH_US + 1e3 * HOST_MS * (rows > 1)
        ahead, without = (1e3 * step_ms(model, card, rows, BUSY, asked) - less for asked in (True, False))
        figures = f"{ahead:.0f} | {row['us']:.0f} | {row['us'] / ahead:.2f}"
        lines.append(f"| {row['model']} | {rows} | {figures} | {without:.0f} | {row['nothing ahead, us']:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if reports := sys.argv[1:]:
        print(*(beside_measured(Path(one)) for one in reports), sep="\n\n")
    else:
        print(table(), of_gguf(), of_families(), of_prompts(), of_own_layers(), sep="\n\n")
