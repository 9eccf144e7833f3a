"""The table of strategies by backend in docs/backends.md."""

from specchat.engine import families
from specchat.engine.backends import BACKENDS, DEFAULT_BACKEND, GGUF_BACKEND, HF_BACKEND, REMOTE_BACKEND, declared
from specchat.engine.strategies import HEADS, STRATEGIES

SENTENCES = {
    DEFAULT_BACKEND: "specchat's own decoder takes safetensors and GGUF files of {families} and costs nothing to "
    'install; weights are as stored, or dense ones in 4 or 8 bits (`quant = "nf4"`), which saves memory and time.',
    GGUF_BACKEND: "llama.cpp takes other GGUF files and costs `pip install 'specchat[gguf]'`, which compiles for "
    "minutes, and some of plain decoding's speed on most processors; a model with a running state has `plain` alone "
    "([gguf.md](gguf.md)).",
    HF_BACKEND: "transformers takes any other text model that it knows, such as Phi, Falcon or Gemma 2, and costs "
    "speed: passes run eagerly, on the CPU in float32; a model whose cache cannot be taken back has `plain` alone "
    "([transformers.md](transformers.md)).",
    REMOTE_BACKEND: "an inference server elsewhere, such as llama.cpp's, vLLM or SGLang, runs the model and drafts as "
    "it was started; steps and acceptance are read from it ([remote.md](remote.md)).",
}
"""Models and costs of each backend."""


def table() -> str:
    """The table and a sentence for each backend, as Markdown."""
    head = ["strategy", *(f"`{name}`" for name in BACKENDS)]
    rows = [head, ["---"] * len(head)]
    rows += [[f"`{name}`", *(_cell(name, backend) for backend in BACKENDS)] for name in STRATEGIES]
    sentences = [f"- `{name}`: {SENTENCES[name].format(families=_families())}" for name in BACKENDS]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *sentences, ""])


def _cell(strategy: str, backend: str) -> str:
    info = STRATEGIES[strategy]
    if reason := info.unsupported(declared(True, HEADS, backend)):
        return f"no: {reason}"
    return "with a draft model" if info.needs_draft else "with its heads" if info.needs_head else "yes"


def _families() -> str:
    *first, last = (family.name for family in families.known().values())
    return f"{', '.join(first)} and {last}"
