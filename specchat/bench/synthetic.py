"""A pair of random weights at given shapes, to measure steps without a download."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from torch import Tensor

from specchat.bench.published import Shapes, config_json
from specchat.engine.cpu import compiled
from specchat.engine.errors import EngineError
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.need import Model, Place
from specchat.engine.memory.plan import GIB, Plan, drafting, fits, plan
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Matrix, Norm, Recipe
from specchat.engine.runners.host import host_model, host_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig


def check_room(shapes: Shapes, quant: Quant | None, context: int, device: Place, free: int | None) -> None:
    """Check that the pair fits `free` bytes on `device`; None if unknown.

    Raises:
        EngineError: "memory": it does not fit.
    """
    wanted = planned(shapes, quant, context, device)
    if not fits(wanted, {device: free}):
        raise EngineError(
            "memory",
            f"{shapes.name} with {shapes.target.layers} layers needs {wanted.need(device).total / GIB:.1f} GiB and "
            f"{(free or 0) / GIB:.1f} GiB are free. Ask for fewer with --layers, or for --quant nf4.",
        )


def planned(shapes: Shapes, quant: Quant | None, context: int, device: Place) -> Plan:
    """The memory plan with the target quantised as `quant`, and the draft by the default of models.toml."""
    threads = 0 if device == "cuda" or compiled.unavailable() else CORES
    target = Model(shapes.target, device, quant, half=True, threads=threads)
    return drafting(plan(target, Model(shapes.draft, device, half=True, threads=threads), context), {})


def on_device(shapes: Shapes, quant: Quant | None, context: int, device: torch.device, dtype: torch.dtype) -> Runner:
    """The pair on a GPU `device`, as planned; unquantised weights are in `dtype`."""
    # Imported here: Triton does not exist on every system.
    from specchat.engine.device.decoder import DeviceDecoder
    from specchat.engine.device.weights import random
    from specchat.engine.runners.device import device_runner

    def model(seed: int, one: Model) -> DeviceDecoder:
        weights = random(one.config, one.quant, device, dtype, seed, one.head)
        return DeviceDecoder(one.config, weights, context, device, dtype)

    target, draft = (model(seed, one) for seed, one in enumerate(planned(shapes, quant, context, "cuda").models))
    return device_runner(target, draft, shapes.target.vocab, device)


def beside_tensors(device: torch.device) -> int:
    """Bytes of a GPU in use beside the memory of torch: contexts, modules and graphs of CUDA, and other programs."""
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def on_host(shapes: Shapes, quant: Quant | None, context: int) -> Runner:
    """The pair in the CPU's decoder, read from temporary random checkpoints.

    Raises:
        EngineError: "memory": the disk is too full for them.
    """
    with TemporaryDirectory(prefix="specchat-random-") as folder:
        needed, free = 2 * shapes.target.parameters(), shutil.disk_usage(folder).free
        if needed > free:
            raise EngineError(
                "memory",
                f"{shapes.name} with {shapes.target.layers} layers needs {needed / GIB:.1f} GiB in "
                f"{Path(folder).parent} and {free / GIB:.1f} GiB are free. Ask for fewer with --layers.",
            )
        target = host_model(Checkpoint.open(write_random(Path(folder) / "target", shapes.target, 0)), context, quant)
        draft = host_model(Checkpoint.open(write_random(Path(folder) / "draft", shapes.draft, 1)), context)
    return host_runner(target, draft)


def write_random(folder: Path, config: ModelConfig, seed: int, settings: Mapping[str, object] | None = None) -> Path:
    """Write a checkpoint of random float16 weights, scaled so that activations stay finite; returns `folder`.

    `settings` is the config.json of a model whose layers `published.config_json` does not describe.
    """
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings or config_json(config)))
    generator = torch.Generator().manual_seed(seed)
    home: dict[str, str] = {}
    # A file per layer, so that only one is in memory.
    for part, shapes in enumerate(_shapes(config.recipe)):
        file = f"model-{part:05}.safetensors"
        save_file({name: drawn(name, shape, generator) for name, shape in shapes.items()}, folder / file)
        home |= dict.fromkeys(shapes, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": home}))
    return folder


def drawn(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A random tensor: a matrix in float16, ones for the weight of a norm, zeros for a bias."""
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)
    return torch.empty(shape, dtype=torch.float16).normal_(0, shape[1] ** -0.5, generator=generator)


def shapes_of(matrices: Iterable[Matrix], norms: Iterable[Norm]) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of matrices and norms, by their names in a checkpoint."""
    shapes = {name: shape for norm in norms for name, shape in norm.shapes.items()}
    for matrix in matrices:
        for name, outputs in matrix.parts:
            shapes[f"{name}.weight"] = (outputs, matrix.inputs)
            if matrix.bias:
                shapes[f"{name}.bias"] = (outputs,)
    return shapes


def _shapes(recipe: Recipe) -> Iterator[dict[str, tuple[int, ...]]]:
    """Shapes of the tensors outside the layers, then of those of each layer, by their names."""
    yield shapes_of(dict.fromkeys((recipe.embed, recipe.head)), [recipe.norm])
    for layer in recipe.layers:
        yield shapes_of(layer.products, layer.norms) | layer.vectors
