"""`specchat bench kernels`: the GPU kernels by themselves."""

import json
from itertools import groupby
from pathlib import Path

import click

from specchat.cli.exit_codes import ExitCode
from specchat.cli.interrupt import Interrupt
from specchat.cli.output import Output, Problem, Progress, told
from specchat.cli.writable import WRITABLE


@click.command()
@click.option("--quick", is_flag=True, help="Fewer kernels, formats and rows.")
@click.option("--json", "json_file", type=WRITABLE, metavar="FILE", help="Write the figures there.")
@told
def kernels(quick: bool, json_file: Path | None) -> None:
    """Measure the GPU kernels at Qwen3-8B's shapes, against bitsandbytes and cuBLAS.

    Needs a CUDA GPU. Nothing is loaded: the weights are random.
    """
    with Interrupt() as interrupt:
        progress = Progress()
        progress.show("importing torch")
        from specchat.bench.gpu import require_gpu

        progress.clear()
        gpu = require_gpu("bench kernels")
        # Only now: Triton is not there on every system.
        from specchat.bench.kernel_table import as_json, heading, not_alike, summary, table
        from specchat.bench.kernels import Measured, on_this_gpu

        out = Output()
        progress.show("measuring the bandwidth")
        machine, figures = on_this_gpu(gpu, quick)
        progress.clear()
        out.write(heading(machine))
        seen: list[Measured] = []
        for what, of_kernel in groupby(figures, lambda figure: figure.what):
            progress.show(what)
            measured = []
            for figure in of_kernel:
                measured.append(figure)
                progress.show(f"{what}: {figure.by}, {figure.rows} rows")
                if interrupt.asked:
                    break
            progress.clear()
            out.write(table(measured))
            seen += measured
            if interrupt.asked:
                break
        out.write(summary(seen))
        if json_file:
            json_file.write_text(json.dumps(as_json(machine, seen), indent=1) + "\n", encoding="utf-8")
    if different := not_alike(seen):
        raise Problem(f"Rows differ from rows alone: {', '.join(different)}.", ExitCode.DIFFERENT)
    if interrupt.asked:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
