"""Sixel and iTerm2's images: what other programs read in the codes is the picture."""

import re
import shutil
import subprocess
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from specchat.tui import sixel as codes
from specchat.tui.sixel import inline, sixel

HALF = 1.3
"""Half a hundredth of 255, to which sixel rounds colours."""


def picture(size: tuple[int, int]) -> Image.Image:
    """All colours of a palette where it is large enough, and runs of one."""
    down, across = np.mgrid[: size[1], : size[0]]
    found = Image.fromarray(np.stack((across * 2, down * 5, across + down), -1).astype(np.uint8))
    found.paste((255, 255, 255), (size[0] // 3, 0, size[0] // 2, size[1] // 2))
    return found


def read(text: str) -> np.ndarray:
    """Decode sixel by its grammar, a token at a time; uncovered pixels are -1."""
    head = re.fullmatch(r'\x1bP[\d;]*q"1;1;(\d+);(\d+)(.*)\x1b\\', text, re.S)
    assert head is not None
    width, height = int(head[1]), int(head[2])
    pixels, palette = np.full((height + 6, width, 3), -1.0), dict[int, np.ndarray]()
    x = top = colour = 0
    tokens = re.findall(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|(?:!(\d+))?([?-~])|([$-])", head[3])
    for number, red, green, blue, run, character, move in tokens:
        if red:
            palette[int(number)] = np.array([int(red), int(green), int(blue)]) * 2.55
        elif number:
            colour = int(number)
        elif move:
            x, top = 0, top + 6 * (move == "-")
        else:
            for bit in range(6):
                if (ord(character) - 63) >> bit & 1:
                    pixels[top + bit, x : x + int(run or 1)] = palette[colour]
            x += int(run or 1)
            assert x <= width
    assert (pixels[height:] == -1).all()
    return pixels[:height]


@pytest.mark.parametrize("size", [(120, 48), (101, 35), (1, 1), (7, 6)])
def test_every_pixel_is_there(size: tuple[int, int]) -> None:
    image = picture(size)
    dithered = np.asarray(image.quantize(palette=image.quantize(codes.COLOURS)).convert("RGB"), np.float64)
    assert np.abs(read(sixel(image)) - dithered).max() <= HALF


@pytest.mark.skipif(shutil.which("sixel2png") is None, reason="sixel2png of libsixel is not installed")
def test_libsixel_reads_the_same(tmp_path: Path) -> None:
    image = picture((101, 35))
    text = sixel(image)
    (tmp_path / "a.six").write_text(text)
    subprocess.run(["sixel2png", "-i", str(tmp_path / "a.six"), "-o", str(tmp_path / "a.png")], check=True, timeout=20)
    with Image.open(tmp_path / "a.png") as found:
        assert found.size == image.size
        assert np.abs(np.asarray(found.convert("RGB"), np.float64) - read(text)).max() <= HALF


def test_noise_has_few_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "LONGEST", 10_000)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8))
    assert len(np.unique(read(sixel(noise)).reshape(-1, 3), axis=0)) == codes.FEW_COLOURS


def test_iterm2_is_sent_a_file_and_its_cells() -> None:
    image = picture((101, 35))
    found = re.fullmatch(
        r"\x1b\]1337;File=inline=1;width=11;height=2;preserveAspectRatio=0:([^\x07]*)\x07", inline(image, 11, 2)
    )
    assert found is not None
    with Image.open(BytesIO(b64decode(found[1]))) as sent:
        assert np.array_equal(np.asarray(sent), np.asarray(image))
