"""A number three rows tall."""

_ROWS = (
    "┏━┓╺┓ ╺━┓╺━┓╻ ╻┏━╸┏━╸╺━┓┏━┓┏━┓",
    "┃ ┃ ┃ ┏━┛ ━┫┗━┫┗━┓┣━┓  ┃┣━┫┗━┫",
    "┗━┛╺┻╸┗━╸╺━┛  ╹╺━┛┗━┛  ╹┗━┛╺━┛",
)


def big(text: str) -> tuple[str, str, str]:
    """Digits and points as three rows, other characters as a dash."""
    rows = ["", "", ""]
    for char in text:
        for index, font in enumerate(_ROWS):
            if char.isdigit():
                rows[index] += font[int(char) * 3 : int(char) * 3 + 3]
            elif char == ".":
                rows[index] += (" ", " ", "•")[index]
            else:
                rows[index] += ("   ", "╺━╸", "   ")[index]
    return rows[0], rows[1], rows[2]
