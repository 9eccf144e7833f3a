"""Pairs of published shapes on a GPU that is not there: tensors of those shapes, without values."""

from typing import Literal, cast

import torch
from torch import Tensor

from specchat.bench.published import Shapes
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import ModelWeights, Product, RandomTensors
from specchat.engine.formats.format import BLOCK, NESTED_BLOCK
from specchat.engine.formats.gpu_blocks import InWords
from specchat.engine.formats.layout import EightBit, FourBit, Nested, Weight, mapped, values_of
from specchat.engine.hardware.page_locked import PORTABLE_AND_MAPPED
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS, joined_scores
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Matrix
from specchat.engine.runners.device import device_runner, prepare
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import walk
from tests.kernels.storage import blocks, four_bit

DTYPE = torch.bfloat16
LAYERS = 5
"""Layers of a target that are enough for every strategy; the others launch what these launch."""


Storage = Quant | Literal["int4", "Q4_K", "Q6_K"]
"""How the matrices of a model are stored: quantised at load, in 4 bits with zero points, or in types of GGUF."""


def quantised(outputs: int, inputs: int, quant: Storage | None, device: torch.device) -> Weight:
    """A matrix as loading leaves it."""

    def made(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    if quant is None:
        return made(outputs, inputs, dtype=DTYPE)
    if quant == "int4":
        return mapped(four_bit(outputs, inputs, zeros=True), lambda one: one.to(device))
    if quant == "Q4_K" or quant == "Q6_K":
        return mapped(blocks(quant, outputs, inputs), lambda one: one.to(device))
    if quant == "int8":
        return EightBit(made(outputs, inputs, dtype=torch.int8), made(outputs))
    scales = outputs * inputs // BLOCK
    nested = Nested(made(256), made(-(-scales // NESTED_BLOCK)), made(outputs))
    packed = made(outputs, inputs // 2, dtype=torch.uint8)
    return FourBit(packed, made(outputs, inputs // BLOCK, dtype=torch.uint8), made(16), BLOCK, nested)


def weights(
    c: ModelConfig, quant: Storage | None, device: torch.device, head: Quant | None = None, packed: bool = False
) -> ModelWeights:
    """Those of a whole model; with `packed` experts have 4 bits whatever `quant` says."""
    own_head, in_blocks = not c.tied or head is not None, quant == "Q4_K"
    of_head = quantised(c.vocab, c.hidden, "Q6_K" if in_blocks else head, device)
    embed: Tensor | InWords = locked(device, c.vocab, c.hidden) if own_head else values_of(of_head)
    if in_blocks:
        embed = blocks("Q4_K", c.vocab, c.hidden)
    joined = {} if packed else c.recipe.joined()
    routers = {one.router for one in c.recipe.mixtures}

    def product(form: Matrix, count: int, after: Matrix | None, _: object) -> Product:
        outputs = (count + bool(after)) * sum(form.outputs)
        if after and form in routers:
            outputs = joined_scores(sum(form.outputs))
        of_experts: Storage | None = "nf4" if packed and count > 1 else quant
        return Product(
            quantised(outputs, form.inputs, None if form.dense else of_experts, device),
            torch.empty(outputs, device=device) if form.bias else None,
        )

    walked = walk(c.recipe, RandomTensors(torch.device("cpu"), DTYPE), product, lambda one: one.to(device), joined)
    of = c.recipe.per_layer
    return ModelWeights(
        embed, *walked, of_head, rows=locked(device, *of.table.outputs, of.width) if of else None, joined=joined
    )


def locked(device: torch.device, *shape: int) -> torch.Tensor:
    """A table in main memory that `device` reads; the system gives none to what nobody writes to."""
    made = torch.empty(shape, dtype=DTYPE)
    if device.type == "cuda":
        torch.cuda.cudart().cudaHostRegister(made.data_ptr(), made.nbytes, PORTABLE_AND_MAPPED)
    return made


def pair(shapes: Shapes, context: int, device: torch.device, quant: Quant | None = "nf4") -> Runner:
    """A pair on a GPU, its draft as a plan quantises it."""
    target = DeviceDecoder(shapes.target, weights(shapes.target, quant, device), context, device, DTYPE)
    draft = DeviceDecoder(shapes.draft, weights(shapes.draft, "int8", device, "int8"), context, device, DTYPE)
    return device_runner(target, draft, shapes.target.vocab, device)


def prepared(runner: Runner) -> Runner:
    """The same after all that a load prepares, told that each step adds a token after a whole draft."""
    executor = runner.executor
    assert isinstance(executor, DeviceExecutor)
    verifier = executor._verifier
    for told in verifier._on_host:
        told[2] = 1
        told[verifier._state.result.numel()] = VERIFY_ROWS - 1
    assert isinstance(runner.target.model, DeviceModel)
    prepare(executor, cast("CachedModel[DeviceModel]", runner.target), runner.drafters, lambda _: None)
    return runner
