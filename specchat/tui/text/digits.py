"""A number three rows tall."""

_ROWS = (
    "┏━┓╺┓ ╺━┓╺━┓╻ ╻┏━╸┏━╸╺━┓┏━┓┏━┓",
    "┃ ┃ ┃ ┏━┛ ━┫┗━┫┗━┓┣━┓  ┃┣━┫┗━┫",
    "┗━┛╺┻╸┗━╸╺━┛  ╹╺━┛┗━┛  ╹┗━┛╺━┛",
)

_OTHER = {".": (" ", " ", "•"), ",": ("", "", "")}


def big(text: str) -> tuple[str, str, str]:
    """Digits and points as three rows, commas left out, other characters as a dash."""
    rows = ["", "", ""]
    for char in text:
        for index, font in enumerate(_ROWS):
            if char.isdigit():
                rows[index] += font[int(char) * 3 : int(char) * 3 + 3]
            elif char in _OTHER:
                rows[index] += _OTHER[char][index]
            else:
                rows[index] += ("   ", "╺━╸", "   ")[index]
    return rows[0], rows[1], rows[2]
