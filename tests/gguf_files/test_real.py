"""Real GGUF files as targets: transformers' greedy text on the dequantised weights, and plain's by every strategy."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from specchat.engine.gguf.header import read_header
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from tests.engine.tiny import on_cpu
from tests.gguf_files.test_tokenizer import real_files

PROMPTS = (
    "Why is the sky blue?",
    "Write a haiku about rain.",
    "Count from 1 to 12.",
    "What is 17 + 25?",
    "Translate to French: Good morning, my friend.",
    "Write a Python function that reverses a string.",
    "Name three rivers in Africa.",
    "Repeat this sentence twice: The quick brown fox jumps over the lazy dog.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Sort these numbers: 9, 2, 7, 4.",
    "Explain what a lighthouse is for.",
    "Tell me a story about a fox and a lamp.",
    "List the months of the year.",
    "What does HTML stand for?",
    "Correct the spelling: I recieved teh letter yestarday.",
    "Write a polite email that declines an invitation.",
    "Describe the colour green to a child.",
    "Write JSON with the keys name and age.",
    "Was ist die Hauptstadt von Italien?",
)
GREEDY_TOKENS, TOKENS = 32, 20
REPLIES = 500
DRAFT_LAYERS = 6
NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def of_llamas() -> list[Path]:
    """The real files with weights of Llama's architecture."""
    headers = {file: read_header(file) for file in real_files()}
    return [file for file, header in headers.items() if header.architecture == "llama" and header.tensors]


FILES = of_llamas()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_gguf,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not FILES, reason="needs SPECCHAT_REAL, a GGUF file of a Llama or a folder of them"),
]


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name)
def file(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def session(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The file with its own first layers as a draft."""
    draft = first_layers(file, tmp_path_factory.mktemp("draft") / "draft.gguf")
    pair = PairSpec("p", "P", on_cpu(file), on_cpu(draft), context=512, activations="float32")
    return load(pair, lambda _: None)


def first_layers(file: Path, made: Path) -> Path:
    """A file of the first layers of another, with its tokens."""
    import gguf

    reader = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(made, "llama")
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            kind, value = field.types[0], field.contents()
            of_list = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, DRAFT_LAYERS if key == "llama.block_count" else value, kind, of_list)
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < DRAFT_LAYERS:
            writer.add_tensor(tensor.name, tensor.data.copy(), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made


def by_transformers(file: Path) -> torch.nn.Module:
    """The file's weights, dequantised by the package gguf, in transformers' own model in float32."""
    import gguf
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = gguf.GGUFReader(file)

    def value(key: str) -> int:
        return reader.fields[f"llama.{key}"].contents()  # type: ignore[no-any-return]

    heads, groups = value("attention.head_count"), value("attention.head_count_kv")
    tensors: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        weights = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()).float()
        weights = weights.reshape(*reversed([int(size) for size in tensor.shape]))
        outer = {
            "token_embd.weight": "model.embed_tokens",
            "output_norm.weight": "model.norm",
            "output.weight": "lm_head",
        }
        name = outer.get(tensor.name)
        if name is None:
            _, layer, part, _ = tensor.name.split(".")
            name = f"model.layers.{layer}.{NAMES[part]}"
            if part in ("attn_q", "attn_k"):  # neighbours turn together in the file, halves in transformers
                count = heads if part == "attn_q" else groups
                size = len(weights) // count // 2
                weights = weights.reshape(count, size, 2, -1).swapaxes(1, 2).reshape(weights.shape)
        tensors[f"{name}.weight"] = weights
    config = LlamaConfig(
        vocab_size=len(tensors["model.embed_tokens.weight"]),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        rope_theta=value("rope.freq_base"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=value("context_length"),
        tie_word_embeddings="lm_head.weight" not in tensors,
    )
    model = LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def reply(session: Session, prompt: str, sampling: Sampling, tokens: int, strategy: str) -> Finished:
    request = Generate(1, (Message("user", prompt),), sampling, Limits(tokens), Speculation.of(strategy))
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last


def test_greedy_text_is_that_of_transformers_on_the_dequantised_weights(file: Path, session: Session) -> None:
    """One pass over prompt and reply shows which token transformers would have written at each place of it."""
    model, compared = by_transformers(file), 0
    for prompt in PROMPTS:
        written: Sequence[int] = reply(session, prompt, Sampling(), GREEDY_TOKENS, "plain").token_ids
        tokens = session.tokenizer.prompt((Message("user", prompt),))
        with torch.inference_mode():
            logits = model(torch.tensor([[*tokens, *written]])).logits[0]
        theirs = logits[len(tokens) - 1 : -1].argmax(1).tolist()
        assert list(written) == theirs, prompt
        compared += len(theirs)
    print(f"{len(PROMPTS)} replies, {compared} tokens equal transformers'")


def test_every_strategy_writes_plains_text(session: Session) -> None:
    strategies = [one.name for one in session.info.strategies if one.available and one.name != "plain"]
    assert {"auto", "draft", "draft-tree", "lookup", "early-exit", "swift"} <= set(strategies)
    counted, tokens = Counter[str](), 0
    for seed in range(-(-REPLIES // len(strategies))):
        prompt = PROMPTS[seed % len(PROMPTS)]
        sampling = Sampling(temperature=0.8, top_p=0.95, seed=seed) if seed % 2 else Sampling()
        plain = reply(session, prompt, sampling, TOKENS, "plain")
        for strategy in strategies:
            drafted = reply(session, prompt, sampling, TOKENS, strategy)
            assert drafted.token_ids == plain.token_ids, (strategy, prompt, sampling)
            counted[strategy] += 1
            tokens += len(plain.token_ids)
    assert counted.total() >= REPLIES
    print(f"{counted.total()} replies, {tokens} tokens equal plain's: {dict(counted)}")
