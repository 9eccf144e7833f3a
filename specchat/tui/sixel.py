"""Codes that put pixels over cells at the cursor: sixel, and iTerm2's inline images.

Sources: DEC's VT330/VT340 Programmer Reference Manual, volume 2, chapter 14; https://iterm2.com/documentation-images.html
"""

import re
from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = 256
FEW_COLOURS = 16
"""Colours of an image whose codes in COLOURS are longer than LONGEST, as those of noise are."""
LONGEST = 2 << 20
_BAND = 6
"""Rows of pixels that a character holds, one of them in each bit."""
_RUN = re.compile(r"(.)\1{3,}")


def sixel(image: "Image") -> str:
    """An RGB image, pixel by pixel, dithered in at most COLOURS colours."""
    codes = _in_colours(image, COLOURS)
    return codes if len(codes) <= LONGEST else _in_colours(image, FEW_COLOURS)


def _in_colours(image: "Image", most: int) -> str:
    import numpy as np

    paletted = image.quantize(palette=image.quantize(most))
    palette = paletted.getpalette() or []
    pixels = np.asarray(paletted)
    height, width = pixels.shape
    parts = [f'\x1bP0;1q"1;1;{width};{height}']
    for colour in np.unique(pixels).tolist():
        red, green, blue = (round(value * 100 / 255) for value in palette[3 * colour : 3 * colour + 3])
        parts.append(f"#{colour};2;{red};{green};{blue}")
    for top in range(0, height, _BAND):
        band = pixels[top : top + _BAND]
        colours, number = np.unique(band, return_inverse=True)
        cells = number.reshape(band.shape) * width + np.arange(width)
        bits = np.broadcast_to(1 << np.arange(len(band))[:, None], band.shape)
        columns = np.bincount(cells.ravel(), bits.ravel(), len(colours) * width).astype(np.uint8) + 63
        for colour, row in zip(colours, columns.reshape(-1, width), strict=True):
            written = row.tobytes().decode().rstrip("?")
            parts.append(f"#{colour}" + _RUN.sub(lambda run: f"!{len(run[0])}{run[1]}", written) + "$")
        parts.append("-")
    return "".join(parts) + "\x1b\\"


def inline(image: "Image", columns: int, rows: int) -> str:
    """An image over so many cells, whatever its pixels."""
    written = BytesIO()
    image.save(written, "PNG")
    data = b64encode(written.getvalue()).decode()
    return f"\x1b]1337;File=inline=1;width={columns};height={rows};preserveAspectRatio=0:{data}\x07"
