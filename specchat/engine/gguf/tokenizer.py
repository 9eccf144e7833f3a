"""A GGUF file's tokenizer and chat template, as the model's own tokenizer.json and tokenizer_config.json have them.

Files do not say which added tokens take the spaces beside them ("lstrip", "rstrip"); here those of Phi-3 do. Their
converter calls added tokens special that look so, such as "<|fim_prefix|>".
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Library

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.gguf.ollama import chat_template
from specchat.engine.gguf.pre_tokenizers import BYTES
from specchat.engine.gguf.token_lists import CONTROL, SPACE, UNKNOWN, USER_DEFINED, Metadata, TokenList
from specchat.engine.text.template import TemplateSource
from specchat.engine.text.tokenizer_files import TokenizerFiles, working

TEMPLATE = "tokenizer.chat_template"
PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")
"""Added tokens of Phi-3 that take no spaces behind them."""


def tokenizer_files(metadata: Metadata, file: Path) -> TokenizerFiles:
    """The tokenizer and the chat template in `metadata` of `file`.

    Raises:
        ModelError: keys are missing or wrong, or the kind of tokenizer is not read here.
    """
    listed = TokenList.read(metadata, file)
    bytewise, named = listed.bytewise, listed.named
    special = {name: listed.texts[token] for name, token in named.items()}
    ids, merges = listed.ids, listed.merges()
    phi3 = listed.scored and metadata.get("general.architecture") == "phi3"
    with working(file, "has a tokenizer (tokenizer.ggml) that cannot be used"):
        backend = Library.from_str(json.dumps(_frame(listed)))
        if bytewise is not None:
            backend.model = models.BPE(ids, merges, ignore_merges=bytewise.whole)
        else:
            unknown = special.get("unk_token")
            backend.model = models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
        backend.add_special_tokens(list(_added(listed, (UNKNOWN, CONTROL), phi3)))
        backend.add_tokens(list(_added(listed, (USER_DEFINED,), phi3)))
    begins = backend.encode("").tokens[:1] == [special.get("bos_token")]
    return TokenizerFiles(backend, file, special, _template(metadata, file, special["bos_token"] if begins else ""))


def stop_tokens(metadata: Metadata, file: Path) -> frozenset[int]:
    """Ids of the tokens that end a reply, as generation_config.json has them.

    Raises:
        ModelError: keys are missing or wrong, or the kind of tokenizer is not read here.
    """
    return TokenList.read(metadata, file).ends


def _added(listed: TokenList, types: tuple[int, ...], phi3: bool) -> Iterator[AddedToken]:
    for text, kind in zip(listed.texts, listed.types, strict=True):
        if kind in types and text:
            strips = phi3 and text not in PHI3_PLAIN
            yield AddedToken(text, rstrip=strips, normalized=False, special=kind != USER_DEFINED)


def _frame(listed: TokenList) -> dict[str, Any]:
    """A tokenizer.json without tokens."""
    bytewise = listed.bytewise
    normalizers: list[dict[str, Any]]
    if bytewise is not None:
        normalizers, decoders = [{"type": "NFC"}] * bytewise.nfc, [BYTES]
    else:
        prefix = listed.keys.switch("add_space_prefix", listed.scored)
        normalizers = [{"type": "Prepend", "prepend": SPACE}] * prefix
        normalizers += [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
        decoders = [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            *[{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * prefix,
        ]
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": bytewise.steps} if bytewise else None,
        "post_processor": _post_processor(listed),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }


def _post_processor(listed: TokenList) -> dict[str, Any] | None:
    """Puts special tokens around a text that no template wrote."""
    keys, bytewise, named = listed.keys, listed.bytewise, listed.named
    begins = keys.switch("add_bos_token", bytewise.begins if bytewise else listed.scored)
    before = ["bos_token"] * (begins and "bos_token" in named)
    behind = ["eos_token"] * (keys.switch("add_eos_token", False) and "eos_token" in named)
    if not before and not behind:
        return None
    single, pair = (
        [
            *({"SpecialToken": {"id": name, "type_id": 0}} for name in before),
            *({"Sequence": {"id": text, "type_id": 0}} for text in texts),
            *({"SpecialToken": {"id": name, "type_id": 0}} for name in behind),
        ]
        for texts in ("A", "AB")
    )
    tokens = {
        name: {"id": name, "ids": [named[name]], "tokens": [listed.texts[named[name]]]} for name in before + behind
    }
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


def _template(metadata: Metadata, file: Path, bos: str) -> TemplateSource:
    """The chat template of no other name, or else that of Ollama, which writes no `bos`.

    Raises:
        ModelError: it is no text.
    """
    text = metadata.get(TEMPLATE)
    if text is not None and not isinstance(text, str):
        raise ModelError(f"{file}: {TEMPLATE} is no text. Download it again.")
    if text:
        return TemplateSource(text, file)
    named = sorted(key.removeprefix(f"{TEMPLATE}.") for key in metadata if key.startswith(f"{TEMPLATE}."))
    if named:
        names = one_line(", ".join(named), 100)
        return TemplateSource(None, file, f"{file.name} has chat templates named {names}, and none is the default")
    return chat_template(file, bos)
