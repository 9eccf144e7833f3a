"""Measures the memory of tunes beside what is planned: `python -m measure.tune_memory FOLDER [--hidden 1024]`.

A random target and a draft of half its layers are written to FOLDER, and each tune of them runs for a few steps in a
process of its own. Its peak (ru_maxrss) stands beside that of a process that loads nothing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import click

from measure.made_pairs import llama

TUNES = {
    "draft": ("draft", "made", "--whole"),
    "draft, adapters": ("draft", "made", "--adapters"),
    "heads, medusa": ("heads", "made", "--family", "medusa"),
    "heads, eagle3": ("heads", "made", "--family", "eagle3"),
    "heads, dflash": ("heads", "made", "--family", "dflash"),
    "exit": ("exit", "made"),
    "swift": ("swift", "made", "--sets", "40"),
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--hidden", default=1024, show_default=True, help="Of both models.")
@click.option("--layers", default=12, show_default=True, help="The target's.")
@click.option("--replies", default=8, show_default=True)
@click.option("--steps", default=4, show_default=True)
def main(folder: Path, hidden: int, layers: int, replies: int, steps: int) -> None:
    """Run all tunes, and print a row for each."""
    llama(folder / "target", hidden, 2 * hidden, layers, 8, seed=1)
    llama(folder / "draft", hidden, 2 * hidden, layers // 2, 8, seed=2)
    toml = folder / "models.toml"
    models = f'target = {{ path = "{folder}/target", device = "cpu" }}\ndraft = {{ path = "{folder}/draft" }}\n'
    toml.write_text(f'schema = 1\ndefault = "made"\n[[pair]]\nid = "made"\n{models}context = 1024\n')
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"turns": [f"Say {number}."]}) + "\n" for number in range(8)))
    sizes = [(folder / name / "model.safetensors").stat().st_size / 4e6 for name in ("target", "draft")]
    idle = _peak([sys.executable, "-c", "import torch, transformers, specchat.tune.training, specchat.engine.loading"])
    click.echo(f"target {sizes[0]:,.0f} M weights, draft {sizes[1]:,.0f} M; {idle / 1e6:,.0f} MB with nothing loaded")
    for name, (kind, *options) in TUNES.items():
        command = [sys.executable, "-m", "specchat", "tune", kind, *options, "--prompts", str(prompts)]
        command += ["--replies", str(replies), "--models", str(toml)]
        command += [] if kind == "swift" else ["--steps", str(steps)]
        peak = _peak(command, {"SPECCHAT_HOME": str(folder / "home")})
        click.echo(f"{name:16} {peak / 1e6:8,.0f} MB, {(peak - idle) / 1e6:8,.0f} above that")


def _peak(command: list[str], environ: dict[str, str] | None = None) -> int:
    """Bytes that a process and its own took at most."""
    code = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, **(environ or {})},
    )  # fmt: skip
    return int(made.stdout.split()[-1]) * 1024


if __name__ == "__main__":
    main()
