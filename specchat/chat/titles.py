"""A chat's title, made from its first exchange without asking a model."""

import re

from specchat.clean import one_line

LONGEST = 48
"""Characters."""
_TOO_LITTLE = 8
"""Characters left of a reply without its greeting below which the greeting stays."""

_FENCE = re.compile(r"(?ms)^(`{3,}|~{3,}).*?(^\1|\Z)")
_MENTION = re.compile(r'(?:^|\s)@(?:"[^"]+"|\S+)')
_LEAD = re.compile(
    r"^(?:(?:hi|hello|hey|please|ok|okay|so|well|now|and|thanks)\b[\s,.!]*"
    r"|(?:can|could|would|will) you\s+"
    r"|(?:i (?:want|need|would like|'d like) (?:you )?to)\s+"
    r"|(?:tell me|show me|give me|help me(?: to)?|let me know)\s+(?:about\s+)?)+",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"[*_`#>\[\]]+")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s|\n")


def make_title(prompt: str, reply: str = "") -> str:
    """A few words of the prompt; of the reply where the prompt says too little, such as "hi". Empty when both do."""
    for text, least in ((prompt, 3), (reply, _TOO_LITTLE)):
        title = _short(text, least)
        if len(title) >= 4:
            return title
    return one_line(prompt, LONGEST)


def _first_sentence(text: str) -> str:
    sentence = " ".join(_SENTENCE_END.split(text.strip())[0].split())
    return one_line(sentence, 400).strip(" .,:;!-")


def _short(text: str, least: int) -> str:
    text = _MARKUP.sub("", _MENTION.sub(" ", _FENCE.sub(" ", text[:4000])))
    line = _first_sentence(_LEAD.sub("", text.strip()))
    if len(line) < least:
        line = _first_sentence(text)
    if len(line) > LONGEST:
        cut = line[:LONGEST]
        line = (cut.rsplit(" ", 1)[0] if " " in cut[LONGEST // 2 :] else cut).rstrip(" .,:;!-") + "…"
    return line[:1].upper() + line[1:]
