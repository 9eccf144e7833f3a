"""A chat's title, made from its first exchange that is no greeting, without asking a model."""

import re
from pathlib import PurePath

from specchat.clean import one_line

LONGEST = 48
"""Characters."""
_TOO_LITTLE = 8
"""Characters left of a reply without its greeting below which the greeting stays."""

_FENCE = re.compile(r"(?ms)^(`{3,}|~{3,}).*?(^\1|\Z)")
_MENTION = re.compile(r'(?:^|\s)@(?:"([^"]+)"|(\S+))')
_LEAD = re.compile(
    r"^(?:(?:hi|hello|hey|please|ok|okay|so|well|now|and|thanks)\b[\s,.!]*"
    r"|(?:can|could|would|will) you\s+"
    r"|(?:i (?:want|need|would like|'d like) (?:you )?to)\s+"
    r"|(?:tell me|show me|give me|help me(?: to)?|let me know)\s+(?:about\s+)?)+",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"(?:(?:hi|hiya|hello|hey|howdy|yo|greetings|hallo|hola|bonjour|salut|ciao|good (?:morning|afternoon|evening|day))"
    r"(?: (?:hi|hello|there|you|all|again|everyone|friend|bot))*)"
    r"(?: (?:how are you|how is it going|how's it going|what's up)(?: (?:doing|today))*)?",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"[*_`#>\[\]]+")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s|\n")


def is_greeting(prompt: str) -> bool:
    """True if a prompt greets and asks for nothing: "Hello!", "hi there, how are you?"."""
    words = " ".join(re.sub(r"[^\w\s']", " ", prompt[:100].replace("’", "'")).split())
    return len(prompt) <= 100 and _GREETING.fullmatch(words) is not None


def make_title(prompt: str, reply: str = "") -> str:
    """A few words of the prompt: all of a greeting; of the reply where it says too little, such as "?".

    Empty when both do.
    """
    if is_greeting(prompt):
        greeting = _first_sentence(prompt)
        return greeting[:1].upper() + greeting[1:LONGEST]
    for text, least in ((prompt, 3), (reply, _TOO_LITTLE)):
        title = _short(text, least)
        if len(title) >= 4:
            return title
    return one_line(prompt, LONGEST)


def _first_sentence(text: str) -> str:
    sentence = " ".join(_SENTENCE_END.split(text.strip())[0].split())
    return one_line(sentence, 400).strip(" .,:;!-")


def _file(mention: re.Match[str]) -> str:
    """A file that is mentioned, without its folders."""
    return f" {PurePath(mention[1] or mention[2]).name}"


def _short(text: str, least: int) -> str:
    text = _MARKUP.sub("", _MENTION.sub(_file, _FENCE.sub(" ", text[:4000])))
    line = _first_sentence(_LEAD.sub("", text.strip()))
    if len(line) < least:
        line = _first_sentence(text)
    if len(line) > LONGEST:
        cut = line[:LONGEST]
        line = (cut.rsplit(" ", 1)[0] if " " in cut[LONGEST // 2 :] else cut).rstrip(" .,:;!-") + "…"
    return line[:1].upper() + line[1:]
