"""The embedded pair on the GPU: against the CPU, captured against eager, and its step costs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.formats.layout import values_of
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.hardware.page_locked import page_locked
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.host import NativeModel, host_model
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import HEADS
from specchat.engine.weights.checkpoint import Checkpoint

CONTEXT = 512
PROMPT = tuple(range(20, 120))
TOKENS = 200
"""Length of a reply: with the prompt it crosses a boundary of attention's splits."""
ROWS = 16
"""Tokens of a pass with all logits."""
LENGTHS = (1, 5, 15)
SAMPLINGS = {"greedy": Sampling(), "filtered": Sampling(seed=4, temperature=0.8, top_k=50, top_p=0.9)}
APART: Mapping[Quant | None, tuple[float, float]] = {None: (0.03, 0.3), "nf4": (0.15, 1.0)}
"""Allowed mean and largest error of logits against the CPU in float32, in standard deviations.

Weights are rounded to bfloat16 before they are quantised on a GPU: some get another code.
"""


def decoder(folder: Path, quant: Quant | None, device: torch.device, context: int = CONTEXT) -> DeviceDecoder:
    """Load a model in the precision of pairs on a GPU, float32 under the interpreter."""
    checkpoint = Checkpoint.open(folder)
    weights = load(checkpoint, quant, device, place.dtype() if device.type == "cuda" else torch.bfloat16)
    return DeviceDecoder(checkpoint.config, weights, context, device, values_of(weights.embed).dtype)


def runner(demo: Path, quant: Quant | None, captured: bool) -> Runner:
    """Load the pair with its heads, its target quantised as `quant`."""
    device = place.gpu()
    target, draft = decoder(demo / "target", quant, device), decoder(demo / "draft", None, device)
    heads = FoundHeads({name: HeadFiles.open(demo / name) for name in HEADS if (demo / name).is_dir()})
    return device_runner(target, draft, target.config.vocab, device, captured, found=heads)


def write(
    pair: Runner,
    strategy: str,
    length: int,
    sampling: Sampling,
    prompt: Sequence[int] = PROMPT,
    tokens: int = TOKENS,
    acceptance: Acceptance = "coupled",
) -> list[int]:
    """token_ids of a reply of a strategy to `prompt`; end-of-text tokens do not end it."""
    begun = list(prompt)
    pair.target.keep(0)
    pair.target.begin(begun)
    # Drafters may share their knowledge of the text: notify all of them, as a session does.
    for drafter in pair.drafters.values():
        drafter.forget()
        drafter.begin(begun)
    reply = pair.reply(sampling, list(begun), ())
    while len(reply.committed) < len(begun) + tokens:
        reply.step(pair.drafters[strategy], length, acceptance)
    reply.close()
    return reply.committed[len(begun) :][:tokens]


def in_bfloat16(notes: Notes) -> None:
    """Logits and a greedy reply of the unquantised target, GPU against CPU."""
    against_the_cpu(notes, None)


def in_nf4(notes: Notes) -> None:
    """Logits and a greedy reply with NF4 weights, GPU against CPU."""
    against_the_cpu(notes, "nf4")


def against_the_cpu(notes: Notes, quant: Quant | None) -> None:
    """Note errors of logits over a text; greedy replies may differ only from a near-tie on."""
    device = place.gpu()
    host = host_model(Checkpoint.open(notes.demo / "target"), CONTEXT, quant)
    chosen = _greedy(host, TOKENS)
    text = [*PROMPT, *chosen]
    truth = torch.cat([host.logits(host.forward(text[i : i + ROWS], i)).clone() for i in range(0, len(text), ROWS)])
    ours = logits(decoder(notes.demo / "target", quant, device), text)
    mean, most = APART[quant]
    apart, spread = (ours - truth).abs(), float(truth.std())
    worst = place.largest(ours - truth)
    alike = float((ours.argmax(-1) == truth.argmax(-1)).float().mean())
    notes.row(quant=quant or "bfloat16", tokens=len(text), top_1=alike, mean=float(apart.mean()), spread=spread)
    notes.within("logits, mean", float(apart.mean()) / spread, mean)
    notes.within("logits, most", worst / spread, most)
    made = write(runner(notes.demo, quant, captured=True), "plain", 0, Sampling())
    first = next((i for i, (a, b) in enumerate(zip(made, chosen, strict=True)) if a != b), None)
    margin = None
    if first is not None:
        row = truth[len(PROMPT) + first - 1]
        margin = float(row[chosen[first]] - row[made[first]])
        notes.expect(
            margin <= 2 * worst,
            f"greedy reply: token {first} is another than the CPU's, which is likelier by {margin:.2g}",
        )
    notes.row(quant=quant or "bfloat16", greedy_tokens=TOKENS, differs_from=first, margin=margin)


def logits(model: DeviceDecoder, text: Sequence[int]) -> Tensor:
    """Logits float32 [len(text), vocab] of passes of ROWS tokens, on the host."""
    found, device = list[Tensor](), model.device
    for first in range(0, len(text), ROWS):
        part = text[first : first + ROWS]
        fed = torch.tensor(part, dtype=torch.int32, device=device)
        model.forward(fed, torch.tensor([first], dtype=torch.int32, device=device), len(part))
        found.append(model.logits(0, len(part))[: len(part)].float().cpu().clone())
    return torch.cat(found)


def _greedy(host: NativeModel, tokens: int) -> list[int]:
    """Greedy continuation of the prompt by `tokens` tokens."""
    text = list(PROMPT)
    for first in range(0, len(text) - 1, ROWS):
        host.forward(text[first : min(first + ROWS, len(text) - 1)], first)
    while len(text) < len(PROMPT) + tokens:
        text.append(int(host.next_logits(text[-1], len(text) - 1).argmax()))
    return text[len(PROMPT) :]


def captured_and_eager(notes: Notes) -> None:
    """Check that every strategy and length in captured graphs writes the text of plain eager launches."""
    eager, captured = runner(notes.demo, "nf4", captured=False), runner(notes.demo, "nf4", captured=True)
    for name, sampling in SAMPLINGS.items():
        plain = write(eager, "plain", 0, sampling)
        for strategy in captured.drafters:
            for length in (0,) if strategy == "plain" else LENGTHS:
                made = write(captured, strategy, length, sampling)
                differs = next((i for i, (a, b) in enumerate(zip(made, plain, strict=True)) if a != b), None)
                notes.row(sampling=name, strategy=strategy, length=length, differs_from=differs)
                notes.expect(
                    differs is None, f"{strategy} of {length} tokens, {name}: token {differs} is not the plain one"
                )


def verify_cost(notes: Notes) -> None:
    """v(M): cost of verifying M tokens, in plain steps."""
    pair, plain = runner(notes.demo, "nf4", captured=True), 0.0
    for length in (0, 1, 3, 7, 15):
        steps = _steps(pair, length, 40)[10:]
        verify, draft = median(step[0] for step in steps), median(step[1] for step in steps)
        plain = plain or verify
        notes.row(tokens=length + 1, verify_ms=verify, in_plain_steps=verify / plain, draft_ms=draft)


def _steps(pair: Runner, length: int, count: int) -> list[tuple[float, float]]:
    """Milliseconds of verifying and drafting, for each of some steps."""
    pair.target.keep(0)
    pair.target.begin(list(PROMPT))
    drafter = pair.drafters["draft" if length else "plain"]
    drafter.begin(list(PROMPT))
    reply = pair.reply(Sampling(), list(PROMPT), ())
    found = list[tuple[float, float]]()
    while len(found) < count and len(reply.committed) < CONTEXT - 2 * max(LENGTHS):
        step = reply.step(drafter, length, "coupled")
        found.append((step.verify_ms, step.draft_ms))
    reply.close()
    return found


def trace(notes: Notes) -> None:
    """Device time by kernel over ten steps of five drafts."""
    pair = runner(notes.demo, "nf4", captured=True)
    _steps(pair, 5, 4)
    for row in profiled(lambda: _steps(pair, 5, 10), notes.out):
        notes.row(**row)
    notes.expect(bool(notes.rows), "the trace has no kernel")


def profiled(work: Callable[[], object], out: Path | None) -> list[dict[str, Any]]:
    """Device time of the busiest kernels while `work` runs; trace.json in `out` opens in Perfetto."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    if out is not None:
        seen.export_chrome_trace(str(out / "trace.json"))
    busiest = sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)[:40]
    return [
        {"kernel": event.key[:80], "launches": event.count, "us": event.self_device_time_total}
        for event in busiest
        if event.self_device_time_total
    ]


def memory(notes: Notes) -> None:
    """Bytes in use before a load, after it, after all captures, and after unloading."""
    device = place.gpu()

    def used(when: str) -> None:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        used, kept = total - free, torch.cuda.memory_reserved()
        notes.row(when=when, used=used, torch=torch.cuda.memory_allocated(), kept=kept, beside=used - kept)

    torch.zeros(1, device=device)
    used("before")
    pair = runner(notes.demo, "nf4", captured=True)
    used("loaded")
    pair.prepare(print)
    used("captured")
    write(pair, "draft", 5, Sampling())
    used("after a reply")
    del pair
    torch.cuda.empty_cache()
    used("unloaded")


def bandwidth(notes: Notes, mib: int = 512) -> None:
    """Bytes a second of the GPU's memory, by a copy and by a sum, which only reads, and of main memory to the GPU."""
    device = place.gpu()
    source = torch.ones(mib << 18, device=device)
    target, total = torch.empty_like(source), torch.empty((), device=device)
    locked = page_locked(source, source.dtype, device)
    tasks = {
        "copy": (partial(target.copy_, source), 2),
        "read": (partial(torch.sum, source, 0, out=total), 1),
        "main memory": (partial(target.copy_, locked, non_blocking=True), 1),
    }
    for what, (task, passes) in tasks.items():
        times = []
        for _ in range(22):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            task()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        ms = median(times[2:])
        notes.row(what=what, mib=mib, ms=ms, gb_a_second=passes * source.nbytes / ms / 1e6)
