"""Stand-ins for a decoder and its graphs, to list the kernels that they launch."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

import torch
from torch import Tensor

from specchat.engine.device.cut import CutDecoder
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.weights import ModelWeights, Product, RandomTensors
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.layout import EightBit, FourBit, Joined, Weight, mapped
from specchat.engine.recipe import Attention, Layer, Matrix
from specchat.engine.strategies import STRATEGIES
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import walk

HOST = torch.device("cpu")


class Rehearsed(Graphs):
    """Graphs whose bodies run eagerly, with the rows of captured passes."""

    def __init__(self, device: torch.device, state: Sequence[Tensor], captured: bool = True) -> None:
        super().__init__(device, state, False)
        self.captured = captured

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        body()


def blank(decoder: DeviceDecoder) -> DeviceDecoder:
    """Return a decoder in main memory with the shapes and formats of `decoder`, uninitialised and of few layers.

    The system allocates memory at the first write, so this decoder needs hardly any.
    """
    if isinstance(decoder, CutDecoder):
        front, (rest, weights) = blank(decoder.front), _brief(decoder, decoder.rest)
        return CutDecoder(decoder.config, front, rest, weights, decoder.context, HOST, decoder.dtype)
    return DeviceDecoder(*_brief(decoder, decoder.config), decoder.context, HOST, decoder.dtype)


def _brief(decoder: DeviceDecoder, config: ModelConfig) -> tuple[ModelConfig, ModelWeights]:
    """A model of few layers of `config`, with weights of the shapes of those of `decoder`."""
    weights, recipe = decoder.weights, config.recipe
    kept = replace(recipe, layers=_sharing(list(_distinct(recipe.layers, weights))))
    embed = mapped(weights.embed, empty)
    head = embed if weights.head is weights.embed else mapped(weights.head, empty)

    def product(form: Matrix, *_: object) -> Product:
        held = weights.products[form]
        return Product(mapped(held.weight, empty), _or_none(held.bias))

    made = ModelWeights(
        embed,
        *walk(kept, RandomTensors(HOST, decoder.dtype), product, empty, weights.joined),
        head,
        None if weights.tokens is None else weights.tokens.to(HOST),
        _or_none(weights.rows),
        weights.joined,
    )
    return replace(config, recipe=kept), made


def empty(tensor: Tensor) -> Tensor:
    """Return an uninitialised tensor in main memory of the same shape and dtype."""
    return torch.empty_like(tensor, device=HOST)


def _or_none(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else empty(tensor)


def _distinct(layers: Sequence[Layer], weights: ModelWeights) -> Iterator[Layer]:
    """Yield the layers that any strategy needs, and one of each further form: some are dense, or differ in shape."""
    seen, needed = set(), max(one.layers for one in STRATEGIES.values())
    for index, layer in enumerate(layers):
        held = (weights.products[matrix].weight for matrix, _ in layer.forms if matrix in weights.products)
        form = _unnamed(layer), *map(_form, held)
        if index < needed or form not in seen:
            yield layer
        seen.add(form)


def _sharing(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers, each of which that shares KV entries shares those of the last owner of its shape before it."""
    owners, made = dict[tuple[int, int], int](), list[Layer]()
    for index, layer in enumerate(layers):
        if isinstance(layer.mixer, Attention):
            shape = layer.mixer.kv_heads, layer.mixer.head_dim
            if layer.share is None:
                owners[shape] = index
            else:
                layer = replace(layer, mixer=replace(layer.mixer, share=owners[shape]))
        made.append(layer)
    return tuple(made)


def _unnamed(part: object) -> object:
    """Fields of a part of a recipe without names of tensors, and without options that fill tables of one shape."""
    if not is_dataclass(part):
        return part
    of_one_shape = "name", "names", "options", "convolution", "decay", "shift", "skip", "weight"
    optional = {"scalar": "", "sinks": "", "factors": "", "correction": "", "curve": (), "conv_bias": "", "share": None}
    named = {f.name: getattr(part, f.name) for f in fields(part) if f.name not in of_one_shape}
    return tuple(value != optional[name] if name in optional else _unnamed(value) for name, value in named.items())


def _form(weight: Weight) -> tuple[object, ...]:
    match weight:
        case FourBit(_, scales, _, block, nested, zeros, order):
            factors = nested is not None and nested.absmax is not None
            return "4 bits", scales.dtype, block, factors, zeros is None, order is None
        case EightBit():
            return ("8 bits",)
        case WordBlocks():
            held = (None if one is None else one.dtype for one in (weight.scales, weight.supers, weight.code))
            return weight.bits, weight.block, weight.minimums_in, weight.order is None, *held
        case GridWords():
            return weight.grid.name, weight.order is None
        case Joined(parts):
            return tuple((part.shape, _form(part)) for part in parts)
        case Tensor():
            return "dense", weight.dtype
        case _:
            raise TypeError(f"{type(weight).__name__} has no kernel")
