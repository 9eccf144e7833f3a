"""Measures the memory of tunes beside what is planned: `python -m measure.tune_memory FOLDER [--hidden 1024]`.

A random target and a draft of half its layers are written to FOLDER, and each tune of them runs for a few steps on the
longest texts, in a process of its own. Its peak (ru_maxrss) stands beside the plan's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import click

from measure.made_pairs import VOCAB, llama
from specchat.config.catalog import load_catalog
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.tune import exits
from specchat.tune.families import FAMILIES
from specchat.tune.plan import recommend_memory, training_plan, tune_plan

TUNES = {
    "draft": ("draft", "made", "--whole"),
    "draft, adapters": ("draft", "made", "--adapters"),
    "heads, medusa": ("heads", "made", "--family", "medusa"),
    "heads, eagle3": ("heads", "made", "--family", "eagle3"),
    "heads, dflash": ("heads", "made", "--family", "dflash"),
    "exit": ("exit", "made"),
    "swift": ("swift", "made", "--sets", "40"),
    "recommend": ("recommend", "made", "--dry-run", "--minutes", "1.1"),
}
LONG = 60
"""Sentences of a prompt, so that texts are as long as a training takes them."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--hidden", default=1024, show_default=True, help="Of both models.")
@click.option("--layers", default=12, show_default=True, help="The target's.")
@click.option("--vocab", default=VOCAB, show_default=True, help="Tokens, with padding behind the tokenizer's.")
@click.option("--replies", default=8, show_default=True)
@click.option("--steps", default=4, show_default=True)
@click.option("--only", multiple=True, type=click.Choice([*TUNES]), help="These tunes.")
def main(folder: Path, hidden: int, layers: int, vocab: int, replies: int, steps: int, only: tuple[str, ...]) -> None:
    """Run all tunes, and print a row for each."""
    llama(folder / "target", hidden, 2 * hidden, layers, 8, seed=1, vocab=vocab)
    llama(folder / "draft", hidden, 2 * hidden, layers // 2, 8, seed=2, vocab=vocab)
    toml = folder / "models.toml"
    models = f'target = {{ path = "{folder}/target", device = "cpu" }}\ndraft = {{ path = "{folder}/draft" }}\n'
    toml.write_text(f'schema = 1\ndefault = "made"\n[[pair]]\nid = "made"\n{models}context = 1024\n')
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"turns": [f"Say {number}. " * LONG]}) + "\n" for number in range(8)))
    sizes = [(folder / name / "model.safetensors").stat().st_size / 4e6 for name in ("target", "draft")]
    idle = _peak([sys.executable, "-c", "import torch, transformers, specchat.tune.training, specchat.engine.loading"])
    click.echo(f"target {sizes[0]:,.0f} M weights, draft {sizes[1]:,.0f} M; {idle / 1e6:,.0f} MB with nothing loaded")
    planned = _planned(toml)
    for name, (kind, *options) in TUNES.items():
        if only and name not in only:
            continue
        command = [sys.executable, "-m", "specchat", *([] if kind == "recommend" else ["tune"]), kind, *options]
        command += ["--prompts", str(prompts), "--models", str(toml)]
        command += [] if kind == "recommend" else ["--replies", str(replies)]
        command += [] if kind in ("swift", "recommend") else ["--steps", str(steps)]
        peak = _peak(command, {"SPECCHAT_HOME": str(folder / "home")})
        plan = f", planned {planned[name] / 1e6:8,.0f}" if name in planned else ""
        click.echo(f"{name:16} {peak / 1e6:8,.0f} MB{plan}")


def _planned(toml: Path) -> dict[str, int]:
    """Bytes that each tune of the pair is planned to take."""
    session = load(load_catalog(toml).find("made").spec, lambda _: None)
    model = session.target.model
    assert isinstance(model, CachedDecoder)
    plans = {f"heads, {name}": training_plan(session.info, each.size(model.config), 1, 1).memory
             for name, each in FAMILIES.items()}  # fmt: skip
    places = exits.exits(model.config.layers, None)
    plans["exit"] = training_plan(session.info, exits.size(model.config, places), 1, 1).memory
    plans["draft"] = tune_plan(session.info, adapted=False).memory
    plans["draft, adapters"] = tune_plan(session.info, adapted=True).memory
    return plans | {"recommend": recommend_memory(session.info)}


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
