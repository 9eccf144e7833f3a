"""Places of the tensors of a recipe in a GGUF file, and what llama.cpp's converter rearranged.

A tensor is found by what it is in the recipe, whatever the family. Names: llama.cpp's src/llama-arch.cpp;
rearrangements: its conversion/.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specchat.engine.gguf.files import GgufFiles
from specchat.engine.recipe import Attention, Delta, Experts, Gated, Latent, Layer, Matrix, Norm, Recipe, ShortConv

NOT_READ = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that say how positions rotate: settings, not weights."""
Change = Literal["", "plus_one", "exponential"]


@dataclass(frozen=True)
class StoredAs:
    """The place of a tensor of a recipe in a file.

    Attributes:
        name: of the tensor in the file.
        expert: number of a matrix in a stack; None: the whole tensor.
        rows: of the stored tensor, in the order of the recipe; empty: all as stored.
        inputs: of the stored tensor, in the order of the recipe; empty: as stored.
        change: the file holds x + 1, or -e^x.
        dims: dimensions of the tensor; files leave out those of 1.
        values: name of the values of latent attention, whose keys `name` holds transposed, [heads, latent, head]; rows
            of a head's key come before those of its value.
    """

    name: str
    expert: int | None = None
    rows: Sequence[int] = field(default=(), repr=False)
    inputs: Sequence[int] = field(default=(), repr=False)
    change: Change = ""
    dims: int = 1
    values: str = ""


def sources(recipe: Recipe, files: GgufFiles, paired: bool) -> dict[str, StoredAs]:
    """The sources of all tensors of a recipe, by their names in it; of missing ones the name they should have.

    `paired` as in `config.Architecture`.
    """
    return dict(_Walk(recipe, files, paired).all())


def unread(recipe: Recipe, files: GgufFiles, found: dict[str, StoredAs]) -> str:
    """A tensor that no tensor of the recipe comes from, at least in part; empty where there is none.

    Layers after those of the recipe predict further tokens, and are left out.
    """
    rows: dict[str, int] = {}
    for one in found.values():
        for name in filter(None, (one.name, one.values)):
            rows[name] = rows.get(name, 0) + (len(one.rows) if not one.expert else 0)
    for name in files.tensors:
        shape, before = files.shape(name), name.partition(".")[0] == "blk"
        number = int(layer) if before and (layer := name.split(".")[1]).isdecimal() else -1
        if number >= len(recipe.layers) or name in NOT_READ:
            continue
        mixer = recipe.layers[number].mixer if number >= 0 else None
        if name in rows:
            stored = shape[1] if len(shape) == 3 else next(iter(shape), 0)
            if rows[name] not in (0, stored):
                return f"{name} with {stored} rows"
        elif not (isinstance(mixer, Attention) and name.split(".")[2] in _unused(mixer)):
            return name
    return ""


def _unused(mixer: Attention) -> tuple[str, ...]:
    """Tensors of attention that files may hold though it reads none: of entries it shares, and factors as norms."""
    shared = ("attn_k", "attn_v", "attn_k_norm") if mixer.share is not None else ()
    nameless = mixer.query_norm is not None and not mixer.query_norm.name
    return (*shared, *(("attn_q_norm", "attn_k_norm") if nameless else ()))


class _Walk:
    """A walk over a recipe."""

    def __init__(self, recipe: Recipe, files: GgufFiles, paired: bool) -> None:
        self._recipe, self._files = recipe, files
        self._paired = paired
        self._halved = files.has_sections
        self._before = ""
        """Beginning of the names of the layer."""

    def all(self) -> Iterator[tuple[str, StoredAs]]:
        recipe = self._recipe
        yield from self._matrix(recipe.embed, ["token_embd"])
        if not recipe.tied:
            yield from self._matrix(recipe.head, ["output"])
        yield from self._norm(recipe.norm, "output_norm", "token_embd_norm")
        if recipe.per_layer:
            yield from self._matrix(recipe.per_layer.table, ["per_layer_token_embd"])
            yield from self._matrix(recipe.per_layer.project, ["per_layer_model_proj"])
            yield from self._norm(recipe.per_layer.norm, "per_layer_proj_norm")
        for number, layer in enumerate(recipe.layers):
            self._before = f"blk.{number}."
            yield from self._layer(layer)
        self._before = ""

    def _layer(self, layer: Layer) -> Iterator[tuple[str, StoredAs]]:
        match layer.mixer:
            case Attention(latent=Latent() as latent) as mixer:
                yield from self._latent(mixer, latent)
            case Attention() as mixer:
                yield from self._attention(mixer)
            case ShortConv() as mixer:
                yield from self._matrix(mixer.mix, ["shortconv.in_proj"])
                yield from self._matrix(mixer.out, ["shortconv.out_proj"])
                yield mixer.convolution, self._source("shortconv.conv.weight", dims=3)
            case Delta() as mixer:
                yield from self._delta(mixer)
        if isinstance(layer.feed, Experts):
            yield from self._experts(layer.feed)
        elif layer.feed:
            yield from self._gated(layer.feed)
        yield from self._norm(layer.pre_mixer, "attn_norm")
        yield from self._norm(layer.pre_feed, "ffn_norm", *(() if layer.post_mixer else ("post_attention_norm",)))
        yield from self._norm(layer.post_mixer, "post_attention_norm")
        yield from self._norm(layer.post_feed, "post_ffw_norm")
        if layer.input:
            yield from self._matrix(layer.input.gate, ["inp_gate"])
            yield from self._matrix(layer.input.down, ["proj"])
            yield from self._norm(layer.input.norm, "post_norm")
        if layer.scalar:
            yield layer.scalar, self._source("layer_output_scale.weight")

    def _attention(self, mixer: Attention) -> Iterator[tuple[str, StoredAs]]:
        qkv = mixer.qkv
        parts = ("q", "gate", "k", "v") if len(qkv.names) == 4 else ("q", "k", "v")
        orders: list[Sequence[int]] = []
        for part, outputs in zip(parts, qkv.outputs, strict=False):
            rotated = part in ("q", "k")
            if rotated and self._paired:
                orders.append(_halves(outputs, mixer.head_dim))
            elif rotated and self._halved and qkv.paired[1]:
                orders.append(_pairs(outputs, *qkv.paired))
            else:
                orders.append(())
        if len(qkv.names) == 1:
            yield from self._matrix(qkv, ["attn_qkv"] if len(qkv.outputs) > 1 else ["attn_q"], orders)
        elif "attn_qkv.weight" in self:
            yield from self._matrix(qkv, ["attn_qkv"], orders)
        else:
            # Where a matrix has two names it is one that the recipe reads twice.
            names = [f"attn_{part}" for part, _ in zip(parts, qkv.names, strict=False)]
            names = [names[qkv.names.index(name)] for name in qkv.names]
            yield from self._matrix(qkv, names, orders)
        yield from self._matrix(mixer.out, ["attn_output"])
        yield from self._norm(mixer.query_norm, "attn_q_norm")
        yield from self._norm(mixer.key_norm, "attn_k_norm")
        if mixer.sinks:
            yield mixer.sinks, self._source("attn_sinks.weight")

    def _latent(self, mixer: Attention, latent: Latent) -> Iterator[tuple[str, StoredAs]]:
        yield from self._matrix(mixer.qkv, ["attn_q_a" if latent.query else "attn_q", "attn_kv_a_mqa"])
        yield from self._matrix(mixer.out, ["attn_output"])
        if latent.query:
            yield from self._matrix(latent.query, ["attn_q_b"])
        yield from self._norm(latent.query_norm, "attn_q_a_norm")
        yield from self._norm(latent.key_value_norm, "attn_kv_a_norm")
        if "attn_k_b.weight" in self:
            values = f"{self._before}attn_v_b.weight"
            yield (
                f"{latent.key_value.names[0]}.weight",
                StoredAs(f"{self._before}attn_k_b.weight", dims=2, values=values),
            )
        else:
            yield from self._matrix(latent.key_value, ["attn_kv_b"])

    def _delta(self, mixer: Delta) -> Iterator[tuple[str, StoredAs]]:
        # Files of Qwen3.5 hold the first value head of each key head, then the second ones; others as the recipe.
        tiled = "ssm_ba.weight" not in self and mixer.sharing > 1
        order = [sharing * mixer.key_heads + key for key in range(mixer.key_heads) for sharing in range(mixer.sharing)]

        def turned(size: int, before: int = 0) -> Sequence[int]:
            values = [before + head * size + row for head in order for row in range(size)]
            return [*range(before), *values] if tiled else ()

        keys = mixer.channels - mixer.value_heads * mixer.value_dim
        yield from self._matrix(
            mixer.mix, ["attn_qkv", "attn_gate"], [turned(mixer.value_dim, keys), turned(mixer.value_dim)]
        )
        assert mixer.gates
        if "ssm_ba.weight" in self:
            of_key = [*range(0, 2 * mixer.value_heads, 2 * mixer.sharing)]
            for part, name in enumerate(mixer.gates.names):
                first = part * mixer.sharing
                rows = [begin + first + head for begin in of_key for head in range(mixer.sharing)]
                yield f"{name}.weight", self._source("ssm_ba.weight", rows=rows, dims=2)
        else:
            yield from self._matrix(mixer.gates, ["ssm_beta", "ssm_alpha"], [turned(1), turned(1)])
        out = self._source("ssm_out.weight", inputs=turned(mixer.value_dim), dims=2)
        yield f"{mixer.out.names[0]}.weight", out
        yield mixer.convolution, self._source("ssm_conv1d.weight", rows=turned(mixer.value_dim, keys), dims=3)
        yield mixer.decay, self._source("ssm_a", rows=turned(1), change="exponential")
        yield mixer.shift, self._source("ssm_dt.bias", rows=turned(1))
        yield from self._norm(mixer.norm, "ssm_norm")

    def _gated(self, feed: Gated, end: str = "") -> Iterator[tuple[str, StoredAs]]:
        """An MLP; `end` of the names of its tensors."""
        gate = f"ffn_gate{end}"
        whole = len(feed.gate_up.names) == 1 or f"{gate}.weight" not in self
        yield from self._matrix(feed.gate_up, [f"ffn_up{end}"] if whole else [gate, f"ffn_up{end}"])
        yield from self._matrix(feed.down, [f"ffn_down{end}"])

    def _experts(self, feed: Experts) -> Iterator[tuple[str, StoredAs]]:
        yield from self._matrix(feed.router, ["ffn_gate_inp"])
        joined = "ffn_gate_up_exps.weight" in self
        for number in range(feed.count):
            each = feed.expert(number)
            names = ["ffn_gate_up_exps"] if joined else ["ffn_gate_exps", "ffn_up_exps"]
            yield from self._matrix(each.gate_up, names, expert=number)
            yield from self._matrix(each.down, ["ffn_down_exps"], expert=number)
        if feed.correction:
            yield feed.correction, self._source("exp_probs_b.bias")
        if feed.factors:
            yield feed.factors, self._source("ffn_down_exps.scale")
        if feed.shared:
            yield from self._gated(feed.shared, "" if feed.apart else "_shexp")
        if feed.shared_gate:
            yield from self._matrix(feed.shared_gate, ["ffn_gate_inp_shexp"])
        if feed.apart:
            yield f"{feed.apart.router.name}.weight", self._source("ffn_gate_inp.scale")
            yield from self._norm(feed.apart.pre_experts, "pre_ffw_norm_2")
            yield from self._norm(feed.apart.post_experts, "post_ffw_norm_2")
            yield from self._norm(feed.apart.pre_shared, "ffn_norm")
            yield from self._norm(feed.apart.post_shared, "post_ffw_norm_1")

    def _matrix(
        self, matrix: Matrix, names: Sequence[str], orders: Sequence[Sequence[int]] = (), expert: int | None = None
    ) -> Iterator[tuple[str, StoredAs]]:
        """The stored matrices of a product, each of its own name, or parts of one."""
        begin = 0
        for number, (name, outputs) in enumerate(matrix.parts):
            rows = orders[number] if number < len(orders) else ()
            if len(names) < len(matrix.names):
                rows = [begin + row for row in rows] or range(begin, begin + outputs)
            if len(matrix.names) == 1 and len(matrix.outputs) > 1 and any(orders):
                rows = _joined(matrix.outputs, orders)
            begin += outputs
            stored = names[number] if len(names) > number else names[0]
            yield f"{name}.weight", self._source(f"{stored}.weight", expert, rows, dims=2)
            if matrix.bias:
                yield f"{name}.bias", self._source(f"{stored}.bias", expert, rows)

    def _norm(self, norm: Norm | None, *names: str) -> Iterator[tuple[str, StoredAs]]:
        """A norm by the first of its names that the file has."""
        if norm is not None and norm.name:
            name = next((one for one in names if f"{one}.weight" in self), names[0])
            yield f"{norm.name}.weight", self._source(f"{name}.weight", change="plus_one" if norm.plus_one else "")
            if norm.bias:
                yield f"{norm.name}.bias", self._source(f"{name}.bias")

    def __contains__(self, name: str) -> bool:
        return f"{self._before}{name}" in self._files.tensors

    def _source(
        self,
        name: str,
        expert: int | None = None,
        rows: Sequence[int] = (),
        inputs: Sequence[int] = (),
        change: Change = "",
        dims: int = 1,
    ) -> StoredAs:
        return StoredAs(f"{self._before}{name}", expert, rows, inputs, change, dims)


def _halves(outputs: int, head: int) -> list[int]:
    """The rows of heads whose values are in pairs of neighbours: the first of each pair, then the second."""
    of_head = [*range(0, head, 2), *range(1, head, 2)]
    return [first + row for first in range(0, outputs, head) for row in of_head]


def _pairs(outputs: int, head: int, rotated: int) -> list[int]:
    """The rows of heads whose rotated values are in halves, in pairs of neighbours."""
    half = rotated // 2
    of_head = [row + half * second for row in range(half) for second in (0, 1)]
    return [first + row for first in range(0, outputs, head) for row in (*of_head, *range(rotated, head))]


def _joined(outputs: Sequence[int], orders: Sequence[Sequence[int]]) -> list[int]:
    """The rows of matrices one after another, each in its order."""
    rows: list[int] = []
    for part, count in enumerate(outputs):
        order = orders[part] if part < len(orders) else ()
        rows += [len(rows) + row for row in order or range(count)] if count else []
    return rows
