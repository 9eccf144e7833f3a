"""GGUF files of random checkpoints whose families `engine/gguf/export.py` does not write, for llama.cpp beside ours.

Names are those of the package gguf; layouts are llama.cpp's, whose logits `measure.cpu_shapes` compares with ours.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor

from specchat.engine.gguf.export import FILE_TYPES, OUTER_MATRICES, Kind
from specchat.engine.gguf.vocabulary import Vocabulary, describe
from specchat.engine.recipe import Delta, Experts, Norm
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights

ARCHITECTURES = {"gemma3_text": "gemma3", "qwen3_moe": "qwen3moe", "qwen3_5_text": "qwen35"}
"""llama.cpp's names of the families that are written here."""
DENSE = ("ssm_alpha", "ssm_beta", "ssm_conv1d", "ffn_gate_inp")
"""Parts of the names of matrices that stay in float32."""


def write(checkpoint: Checkpoint, file: Path, kind: Kind, tokenizer: bool = False) -> None:
    """Write a checkpoint, by default without its tokenizer, the embeddings of q4_0 in q8_0."""
    recipe, arch = checkpoint.config.recipe, ARCHITECTURES[checkpoint.config.family]
    writer = gguf.GGUFWriter(file, arch)
    _describe(writer, checkpoint)
    writer.add_file_type(FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if tokenizer:
        describe(writer, gguf, Vocabulary.of(checkpoint), checkpoint.config.vocab)
    else:
        writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), len(recipe.layers))
    with Weights(checkpoint) as weights:
        for name, tensor in _tensors(checkpoint, weights).items():
            _put(writer, names.get_name(name, (".weight", ".bias")) or name, tensor, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, checkpoint: Checkpoint) -> None:
    c, recipe = checkpoint.config, checkpoint.config.recipe
    of, feed = recipe.attentions[0], recipe.layers[0].feed
    assert feed
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(feed.width)
    writer.add_head_count(of.heads)
    writer.add_head_count_kv(of.kv_heads)
    writer.add_key_length(of.head_dim)
    writer.add_value_length(of.head_dim)
    writer.add_layer_norm_rms_eps(recipe.norm.eps)
    writer.add_vocab_size(c.vocab)
    assert of.rope is not None
    writer.add_rope_freq_base(of.rope.theta)
    writer.add_rope_dimension_count(of.rope.width)
    if of.window:
        writer.add_sliding_window(of.window)
    if isinstance(feed, Experts):
        writer.add_expert_count(feed.count)
        writer.add_expert_used_count(feed.top)
        writer.add_expert_feed_forward_length(feed.each.width)
    if recipe.recurrent:
        mixer = recipe.recurrent[0]
        writer.add_rope_dimension_sections([11, 11, 10, 0])  # of images alone: equal for text
        writer.add_ssm_conv_kernel(mixer.taps)
        writer.add_ssm_state_size(mixer.key_dim)
        writer.add_ssm_group_count(mixer.key_heads)
        writer.add_ssm_time_step_rank(mixer.value_heads)
        writer.add_ssm_inner_size(mixer.value_heads * mixer.value_dim)
        writer.add_full_attention_interval(len(recipe.layers))


def _tensors(checkpoint: Checkpoint, weights: Weights) -> dict[str, Tensor]:
    """Tensors by the names of transformers, experts of a layer stacked, as llama.cpp computes with them."""
    recipe, found = checkpoint.config.recipe, dict[str, Tensor]()
    stacks: dict[str, list[Tensor]] = defaultdict(list)

    def norm(one: Norm) -> None:
        found[f"{one.name}.weight"] = weights.get(f"{one.name}.weight", one.size) + one.plus_one

    for matrix in (recipe.embed, *(() if recipe.tied else (recipe.head,)), *recipe.matrices):
        for name, outputs in matrix.parts:
            weight = weights.linear(name, outputs, matrix.inputs)
            before, number, part = name.partition(".experts.")
            if number:
                stacks[f"{before}.experts.{part.partition('.')[2]}.weight"].append(weight)  # type: ignore[arg-type]
            else:
                found[f"{name}.weight"] = weight  # type: ignore[assignment]
    found |= {name: torch.stack(experts) for name, experts in stacks.items()}
    norm(recipe.norm)
    for layer in recipe.layers:
        for one in layer.norms:
            norm(one)
        for name, shape in layer.vectors.items():
            found[name] = weights.get(name, *shape)
        if isinstance(layer.mixer, Delta):
            _by_turns(layer.mixer, found)
    return found


def _by_turns(of: Delta, found: dict[str, Tensor]) -> None:
    """Put the value heads that share a key head apart: llama.cpp has the first ones of all key heads, then the next."""
    order = torch.arange(of.value_heads).view(of.key_heads, -1).T.flatten()

    def turned(x: Tensor, size: int) -> Tensor:
        made: Tensor = x.unflatten(0, (of.value_heads, size))[order].flatten(0, 1)
        return made

    assert of.gates
    qkv, z = (f"{name}.weight" for name in of.mix.names)
    keys = of.channels - of.value_heads * of.value_dim
    for name in (qkv, of.convolution):
        found[name] = torch.cat([found[name][:keys], turned(found[name][keys:], of.value_dim)])
    found[of.convolution] = found[of.convolution][:, 0]
    for name, size in ((z, of.value_dim), *((f"{name}.weight", 1) for name in of.gates.names)):
        found[name] = turned(found[name], size)
    out = f"{of.out.names[0]}.weight"
    found[out] = turned(found[out].T, of.value_dim).T
    found[of.decay] = turned(-found[of.decay].exp(), 1)
    found[of.shift.replace("dt_bias", "dt_proj.bias")] = turned(found.pop(of.shift), 1)


def _put(writer: Any, name: str, tensor: Tensor, kind: Kind) -> None:
    if tensor.dim() == 1 or any(part in name for part in DENSE):
        kind = "f32"
    elif kind == "q4_0" and name in OUTER_MATRICES:
        kind = "q8_0"
    if kind in ("q4_0", "q8_0"):
        form = gguf.GGMLQuantizationType[kind.upper()]
        packed = gguf.quants.quantize(tensor.float().contiguous().numpy(), form)
        writer.add_tensor(name, packed, raw_dtype=form)
    else:
        stored = tensor.to(torch.float16 if kind == "f16" else torch.float32)
        writer.add_tensor(name, stored.contiguous().numpy())
