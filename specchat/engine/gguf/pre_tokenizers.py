"""Pre-tokenizers of byte-level vocabularies by llama.cpp's names (`tokenizer.ggml.pre`), in tokenizer.json's terms.

The patterns are those of the models' own tokenizer.json. Names without an entry belong to encoders, or to vocabularies
that byte-level BPE does not describe.
"""

from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]
"""An entry of tokenizer.json's pre_tokenizer."""

DIGITS: Step = {"type": "Digits", "individual_digits": True}
BYTES: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
"""Splits as GPT-2 did, and maps bytes to characters."""
BARE_BYTES: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
QWEN2 = rf"{_WORDS}|\p{{N}}|{_SIGNS}|{_SPACES}"
QWEN35 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased(ending: str, digits: str, signs: str, but: str = "") -> str:
    """Words with capitals at their beginning alone; `but` leaves characters out of them."""
    upper, lower = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{upper}*{lower}+{ending}|{before}{upper}+{lower}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{signs}|{_SPACES}"


O200K = _cased(f"{_ENDINGS}?", r"\p{N}{1,3}", r"[\r\n/]*")
TEKKEN = _cased("", r"\p{N}", r"[\r\n/]*")
KIMI = r"[\p{Han}]+|" + _cased(f"{_ENDINGS}?", r"\p{N}{1,3}", r"[\r\n]*", r"&&[^\p{Han}]")
_IDEOGRAPHS = "[一-龥\u3040-ゟ゠-ヿ]+"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_LATIN = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ"
    "\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻"
    "𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
"""DeepSeek's list of letters that have cases."""
_CJK = "[一-龥\u0800-一가-\ud7ff]+"
_DEEPSEEK_LLM = ("[\r\n]", rf"\s?[{_LATIN}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", _CJK)
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK)
_SCRIPTS = f"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{_IDEOGRAPHS}"
_UNSPACED = (
    "[一-鿿㐀-䶿\uf900-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+"
)
"""Scripts that write no spaces."""
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


@dataclass(frozen=True)
class PreTokenizer:
    """A pre-tokenizer, and what else its vocabularies share.

    Attributes:
        nfc: text is normalised to NFC first.
        whole: a piece that is a token stays whole, whatever the merges make of it ("ignore_merges").
        begins: a text begins with bos_token, unless the file says otherwise.
    """

    steps: tuple[Step, ...]
    nfc: bool = False
    whole: bool = False
    begins: bool = False


def split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _patterns(*patterns: str, nfc: bool = False, whole: bool = False, begins: bool = False) -> PreTokenizer:
    steps = (split(pattern) for pattern in patterns)
    return PreTokenizer((*steps, BARE_BYTES), nfc, whole, begins)


_TABLE: tuple[tuple[str, PreTokenizer], ...] = (
    ("gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 jais trillion granite-docling", PreTokenizer((BYTES,))),
    ("olmo mpt", PreTokenizer((BYTES,), nfc=True)),
    ("smollm starcoder refact codeshell exaone minerva-7b mellum2", PreTokenizer((DIGITS, BYTES))),
    ("command-r", PreTokenizer((DIGITS, BYTES), nfc=True)),
    (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
        _patterns(LLAMA3, whole=True, begins=True),
    ),
    ("glm4 glm5", _patterns(LLAMA3, whole=True)),
    ("dbrx smaug-bpe chatglm-bpe", _patterns(LLAMA3)),
    ("qwen2 deepseek-r1-qwen megrez kormo f2llmv2", _patterns(QWEN2, nfc=True)),
    ("stablelm2 hunyuan solar-open grok-2", _patterns(QWEN2)),
    ("laguna", _patterns(r"[^\n]+|[\n]+", QWEN2)),
    ("ufakzeka", _patterns(QWEN2.removeprefix(f"{_ENDINGS}|"))),
    ("qwen35", _patterns(QWEN35, nfc=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _patterns(O200K)),
    ("tekken", _patterns(TEKKEN, whole=True, begins=True)),
    ("kimi-k2", _patterns(KIMI)),
    ("tiny_aya cohere2moe", _patterns(r"\d{1,3}(?=(?:\d{3})*\b)", O200K, nfc=True)),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _patterns(r"\p{N}{1,3}", _IDEOGRAPHS, _PUNCTUATED)),
    ("deepseek-llm", PreTokenizer((*map(split, _DEEPSEEK_LLM), DIGITS, BARE_BYTES))),
    ("deepseek-coder", PreTokenizer((*map(split, _DEEPSEEK_CODER), DIGITS, BARE_BYTES))),
    (
        "falcon",
        PreTokenizer(
            (
                {"type": "Punctuation", "behavior": "Contiguous"},
                BYTES,
                {"type": "Digits", "individual_digits": False},
                split("[0-9][0-9][0-9]"),
            )
        ),
    ),
    ("youtu", _patterns(_SCRIPTS, _cased(f"{_ENDINGS}?", r"\p{N}", r"[\r\n/]*"), whole=True)),
    ("afmoe", _patterns(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", _UNSPACED, _PUNCTUATED)),
    ("bailingmoe bailingmoe2 llada-moe", _patterns(_BAILING)),
    ("seed-coder", _patterns(rf"{_WORDS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}")),
    ("minicpm5", _patterns(r"\p{N}{1,3}", rf"{_WORDS}|\p{{N}}+|{_SIGNS}|{_SPACES}", whole=True)),
    ("exaone-moe", _patterns(_EXAONE)),
    ("bloom poro-chat gpt3-finnish", _patterns(_BLOOM)),
    ("superbpe", _patterns(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    ("viking", PreTokenizer((split(_BLOOM), DIGITS, BARE_BYTES))),
)
PRE_TOKENIZERS = {name: pre_tokenizer for names, pre_tokenizer in _TABLE for name in names.split()}
"""By llama.cpp's names."""
