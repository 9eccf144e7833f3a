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
    r"|(?:i (?:want|need|would like|'d like|am trying) (?:you )?to|i['’](?:m trying|d like you) to)\s+"
    r"|(?:tell me|show me|give me|help me(?: to)?|let me know)\s+(?:about\s+)?)+",
    re.IGNORECASE,
)
_HOW = re.compile(r"^how (?:do|can|should|could|would) (?:i|you|we|one) ", re.IGNORECASE)
_ASKED_FOR = re.compile(
    r"^(?:explain|describe|write|compose|draft|create|generate|make|what(?:['’]s| is| are| was| were))"
    r"(?: (?:to )?(?:me|us))? "
    r"(?!(?:in|on|at|for|with|from|to|of|by|as|if|its?|this|that|these|those|there|you|we|they|s?he|wrong|going|sure"
    r"|happening|about|down|out|up|so|not)\b)",
    re.IGNORECASE,
)
"""Words before what is asked for, which a title needs no more than a heading does."""
_HANGING = re.compile(r" (?:for|about|like|of|doing|called)(?:[,?]|$)", re.IGNORECASE)
"""Ends of a question that would lack its beginning: "the lamp for?"."""
_FOR_ME = re.compile(r" (?:to|for) me\b|,? please\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"(?:what|how|why|who|whom|whose|when|where|which|is|are|am|was|were|do|does|did|can|could|should|will|would|has|have"
    r")\b",
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


def _heading(sentence: str) -> str:
    """The subject of a sentence."""
    subject = _FOR_ME.sub("", _HOW.sub("how to ", sentence))
    if not _HANGING.search(subject):
        subject = _ASKED_FOR.sub("", subject)
    return subject if subject == sentence and _QUESTION.match(sentence) else subject.rstrip(" ?")


def _file(mention: re.Match[str]) -> str:
    """A file that is mentioned, without its folders."""
    return f" {PurePath(mention[1] or mention[2]).name}"


def _short(text: str, least: int) -> str:
    text = _MARKUP.sub("", _MENTION.sub(_file, _FENCE.sub(" ", text[:4000])))
    line = _heading(_first_sentence(_LEAD.sub("", text.strip())))
    if len(line) < least:
        line = _first_sentence(text)
    if len(line) > LONGEST:
        cut = line[:LONGEST]
        line = (cut.rsplit(" ", 1)[0] if " " in cut[LONGEST // 2 :] else cut).rstrip(" .,:;!-") + "…"
    return line[:1].upper() + line[1:]
