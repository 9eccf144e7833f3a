"""Cuts a checkpoint after some layers, as a draft with room to learn: `python -m measure.cut FOLDER OUT --layers N`.

Embeddings, last norm and head stay; the result is a checkpoint of its own, in one file.
"""

import json
import re
import shutil
from pathlib import Path

import click
from safetensors.torch import load_file, save_file

LAYER = re.compile(r"\.layers\.(\d+)\.")


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--layers", type=click.IntRange(1), required=True, help="Those that stay.")
def main(folder: Path, out: Path, layers: int) -> None:
    """Write the first layers of FOLDER to OUT."""
    out.mkdir(parents=True)
    for file in folder.iterdir():
        if file.suffix in (".json", ".model") and not file.name.endswith(".index.json"):
            shutil.copyfile(file, out / file.name)
    settings = json.loads((folder / "config.json").read_bytes())
    (out / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": layers}, indent=1) + "\n")
    tensors = {
        name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()
    }
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if (found := LAYER.search(name)) is None or int(found[1]) < layers
    }
    save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    click.echo(f"{out}: {sum(each.numel() for each in kept.values()):,} weights")


if __name__ == "__main__":
    main()
