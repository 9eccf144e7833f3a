"""`specchat bench --shapes`: steps at published shapes with random weights, for machines without the weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.options import Named, Number
from specchat.cli.output import Output, ProgressLine

SHAPES = ("qwen3-8b", "llama-3.1-8b", "qwen2.5-14b", "qwen3-30b-a3b")
QUANTS = ("nf4", "fp4", "int8", "none")
ACCEPTANCE = 0.7
PACKAGES = ("specchat", "torch")
"""Whose versions make a difference."""
OWN = ("shapes", "layers", "quant", "assumed")
SHAPES_OPTIONS = (
    click.option(
        "--shapes",
        type=Named(SHAPES),
        help="Measure steps of this pair's shapes with random weights instead of a pair.",
    ),
    click.option("--layers", type=click.IntRange(1), metavar="N", help="With --shapes: only the first N layers."),
    click.option("--quant", type=Named(QUANTS), help="With --shapes: how the target is quantised.  [default: nf4]"),
    click.option(
        "--acceptance",
        "assumed",
        type=Number(0, 1),
        help=f"With --shapes: the share of drafted tokens assumed to be kept.  [default: {ACCEPTANCE}]",
    ),
)


def check_options(ctx: click.Context) -> None:
    """Refuse options that have no meaning with --shapes, and those that have none without it."""
    passed = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    options = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    if "shapes" not in passed:
        if stray := [options[name] for name in OWN if name in passed]:
            raise click.UsageError(f"{stray[0]} goes with --shapes.")
    elif other := [options[name] for name in ctx.params if name in passed and name not in (*OWN, "json_file")]:
        raise click.UsageError(f"{other[0]} has no meaning with --shapes, which measures random weights.")


def run_shapes(name: str, layers: int | None, quant: str | None, assumed: float | None, json_file: Path | None) -> None:
    """Measure and write the report.

    Raises:
        EngineError: the shapes do not fit the memory.
    """
    with Interrupt() as interrupt:
        progress = ProgressLine()
        progress.show("starting ...")
        from specchat.bench.published import PUBLISHED
        from specchat.bench.report import describe
        from specchat.bench.shapes import as_json, step_costs, synthetic, text

        published = PUBLISHED[name]
        shapes = published.cut(layers)
        how: Any = None if quant == "none" else quant or "nf4"
        progress.show(f"making random weights of {name}")
        runner, runtime = _runner(shapes, how)
        costs = step_costs(runner, lambda part: progress.show("measuring steps", part), lambda: not interrupt.pressed)
        progress.clear()
        acceptance = ACCEPTANCE if assumed is None else assumed
        report = synthetic(shapes, published, how, runner, costs, acceptance, describe(PACKAGES), runtime())
        Output().write(text(report))
        if json_file:
            json_file.write_text(json.dumps(as_json(report), indent=1) + "\n", encoding="utf-8")
    if interrupt.pressed:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _runner(shapes: Any, quant: Any) -> tuple[Any, Callable[[], int | None]]:
    """The pair, and what tells the bytes of CUDA beside tensors that came with it; None on a processor."""
    import torch

    from specchat.bench.shapes import CONTEXT
    from specchat.bench.synthetic import beside_tensors, check_room, on_device, on_host
    from specchat.engine.hardware.free_memory import free_memory
    from specchat.engine.hardware.gpu import CHOSEN, find_gpu
    from specchat.engine.hardware.threads import leave_one_core

    gpu = find_gpu()
    if not isinstance(gpu, str):
        check_room(shapes, quant, CONTEXT, "cuda", gpu.free)
        before = beside_tensors(CHOSEN.device)
        runner = on_device(shapes, quant, CONTEXT, CHOSEN.device, torch.bfloat16)
        return runner, lambda: beside_tensors(CHOSEN.device) - before
    leave_one_core()
    check_room(shapes, quant, CONTEXT, "cpu", free_memory())
    return on_host(shapes, quant, CONTEXT), lambda: None
