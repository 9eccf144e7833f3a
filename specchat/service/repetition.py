"""Repetition at the end of a reply: small models may write the same few words without end."""

import re

MAX_PERIOD = 128
"""Longest repeated text, in characters: about 32 tokens."""
LEAST_LENGTH, LEAST_TIMES = 256, 4
"""Characters, about 64 tokens, and times that a text is repeated; verses are repeated less often."""
LEAST_LETTERS = 2 / 3
"""Smallest share of letters of what is written; drawings and numbers have fewer."""
FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
WORDS = re.compile(r"[^\W\d_] +[^\W\d_]|[\u2e80-\u9fff\uac00-\ud7af]{2}")
"""Two words with nothing but a space between, or two characters of a script without spaces. Equal rows of tables, lists
and code have other marks between their words."""
MARKUP = re.compile(r"^ *\||\t|<[^>]+>", re.MULTILINE)
"""Rows of tables, and tags."""


def repeats_itself(text: str) -> bool:
    """Return True if `text` ends with the same few words over and over; equal rows of tables and code do not count."""
    for period in range(1, MAX_PERIOD + 1):
        length = max(LEAST_LENGTH, LEAST_TIMES * period)
        if text[-length:-period] == text[period - length :]:
            return _is_prose(text[-2 * period :]) and len(FENCE.findall(text)) % 2 == 0
    return False


def _is_prose(text: str) -> bool:
    written = "".join(text.split())
    letters = sum(map(str.isalpha, written))
    return letters >= LEAST_LETTERS * len(written) > 0 and bool(WORDS.search(text)) and not MARKUP.search(text)
