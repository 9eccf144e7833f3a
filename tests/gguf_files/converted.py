"""Tokenizers as llama.cpp's converter writes them, read back from the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from specchat.engine.gguf.header import read_header
from specchat.engine.gguf.token_lists import Metadata, metadata_of
from specchat.engine.text.tokenizer import Tokenizer


def written(file: Path, fill: Callable[[Any], None], architecture: str = "llama") -> Metadata:
    """Metadata of a file without tensors that `fill` writes."""
    import gguf

    writer = gguf.GGUFWriter(file, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return metadata_of(read_header(file))


def looks_special(text: str) -> bool:
    """True for added tokens that the converter calls special, whatever tokenizer.json says."""
    marked = any(text.startswith(left) and text.endswith(right) for left, right in (("<|", "|>"), ("<｜", "｜>")))
    return marked or text in ("<pad>", "<mask>") or (text.startswith("<unused") and text.endswith(">"))


def converted(folder: Path, file: Path, pre: str, padding: int = 0) -> Metadata:
    """The byte-level tokenizer of `folder`, with as many more embeddings as `padding`."""
    import gguf

    tokenizer = Tokenizer.read(folder)
    added, kinds = tokenizer.added, gguf.TokenType
    texts = {token: text for text, token in tokenizer.vocabulary.items()}

    def kind(token: int) -> int:
        if token not in texts:
            return int(kinds.UNUSED)
        if token not in added:
            return int(kinds.NORMAL)
        special = added[token].special or looks_special(texts[token])
        return int(kinds.CONTROL if special else kinds.USER_DEFINED)

    def fill(writer: Any) -> None:
        size = tokenizer.size + padding
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([texts.get(token, f"[PAD{token}]") for token in range(size)])
        writer.add_token_types([kind(token) for token in range(size)])
        special = gguf.SpecialVocab(folder, load_merges=True)
        begins = tokenizer.backend.encode("", add_special_tokens=True).ids != []
        special.add_special_token.setdefault("bos", begins)  # where no file says so, llama.cpp's default differs
        special.add_to_gguf(writer, quiet=True)

    return written(file, fill)
