"""What cannot be read is refused with a sentence, before anything is computed."""

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from specchat.engine.errors import EngineError
from specchat.engine.pictures import decode, tower
from specchat.engine.pictures.decode import decoded
from specchat.engine.protocol.options import PLACE, Limits, Message, Picture
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.session import Session
from tests.engine.tiny import TEMPLATE, checkpoint, on_cpu
from tests.pictures.conftest import unmeasured
from tests.pictures.whole import picture, saved


def header(width: int, height: int) -> bytes:
    """A PNG file of that size with next to no pixels."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(9)))
    packed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def filed(image: Image.Image, form: str, **options: object) -> bytes:
    image.save(file := BytesIO(), form, **options)  # type: ignore[arg-type]
    return file.getvalue()


GREY = Image.new("L", (30, 20), 90)
BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "of a format that is not read"),
    "text": (b"not a picture", "of a format that is not read"),
    "other format": (filed(GREY, "TIFF"), "of a format that is not read"),
    "cut": (picture().data[:2000], "cannot be read"),
    "without pixels": (header(30, 20), "cannot be read"),
    "bomb": (header(60_000, 60_000), "more than 64 million pixels"),
    "large bomb": (header(2_000_000, 2_000_000), "more than 64 million pixels"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_picture(name: str) -> None:
    data, words = BAD[name]
    with pytest.raises(EngineError, match=words):
        decoded(data)


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MOST_BYTES", 50)
    with pytest.raises(EngineError, match="Send a smaller copy"):
        decoded(filed(GREY, "PNG"))


def test_the_first_frame_upright_as_rgb() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    moving = decoded(filed(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert (moving.mode, moving.getpixel((0, 0))) == ("RGB", (255, 0, 0))
    turned = Image.Exif()
    turned[0x0112] = 6
    assert decoded(filed(GREY, "JPEG", exif=turned.tobytes())).size == (20, 30)


ASKED = (Message("user", "abc", pictures=(picture(),)),)


def refused(session: Session, words: str, asked: tuple[Message, ...] = ASKED) -> None:
    for request in (Generate(1, asked, limits=Limits(2)), Count(2, asked)):
        with pytest.raises(EngineError, match=words):
            list(session.generate(request)) if isinstance(request, Generate) else session.count(request)


def test_a_model_of_text_alone(tmp_path: Path) -> None:
    session = unmeasured(PairSpec("p", "Tiny", on_cpu(checkpoint(tmp_path / "m"))))
    assert not session.info.sees
    refused(session, "^Tiny has no part that reads pictures. Send the message without pictures, or choose")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved("mistral3", tmp_path / "m")


def opened(folder: Path) -> Session:
    session = unmeasured(PairSpec("p", "Tiny", on_cpu(folder)))
    assert session.info.sees
    assert session.info.notes.note == ""
    return session


def without_a_place(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))


def without_settings(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()


def cut_tower(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in weights.items() if not name.endswith("patch_conv.weight")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def quantised_tower(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    whole = {name: one.char() if name.endswith("patch_conv.weight") else one for name, one in weights.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_a_place, "has 0 places for 1 pictures"),
        (without_settings, "preprocessor_config.json is missing or damaged"),
    ],
)
def test_a_checkpoint_whose_files_do_not_do(change: Callable[[Path], None], words: str, folder: Path) -> None:
    change(folder)
    refused(opened(folder), words)


@pytest.mark.parametrize(
    ("change", "words"), [(cut_tower, "patch_conv.weight"), (quantised_tower, "patch_conv.weight is quantised")]
)
def test_a_tower_that_cannot_be_used(change: Callable[[Path], None], words: str, folder: Path) -> None:
    change(folder)
    session = opened(folder)
    with pytest.raises(EngineError, match=words):
        list(session.generate(Generate(1, ASKED, limits=Limits(2))))
    assert len(list(session.generate(Generate(2, (Message("user", "abc"),), limits=Limits(2))))) > 2


def test_memory_that_does_not_suffice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(folder)
    monkeypatch.setattr(tower, "free_memory", lambda: 1000)
    with pytest.raises(EngineError, match=r"Looking at this picture takes 0\.0 GiB of memory"):
        list(session.generate(Generate(1, ASKED, limits=Limits(2))))
    monkeypatch.undo()
    list(session.generate(Generate(1, ASKED, limits=Limits(2))))
    weights = load_file(folder / "model.safetensors")
    of_tower = [one for name, one in weights.items() if "vision" in name or "projector" in name]
    rows = session.count(Count(1, ASKED, tokens=True)).token_ids.count(257)
    weighed = 4 * sum(one.numel() for one in of_tower)
    assert session.album.memory() == weighed + 4 * 64 * rows
    session.forget_read()
    assert session.album.memory() == weighed
    list(session.generate(Generate(1, ASKED, limits=Limits(2))))


def test_a_picture_too_thin_for_its_tower(tmp_path: Path) -> None:
    session = opened(saved("qwen2_5_vl", tmp_path / "m"))
    thin = Picture(filed(Image.new("RGB", (900, 2)), "PNG"))
    refused(session, "aspect ratio", (replace(ASKED[0], pictures=(thin,)),))


def test_messages_that_are_joined_keep_each_picture_before_its_text() -> None:
    one, two = Picture(b"one"), Picture(b"two")
    first, second = Message("user", "a", pictures=(one,)), Message("user", f"b{PLACE}c", pictures=(two,))
    assert first.joined(second) == Message("user", f"{PLACE}a\n\nb{PLACE}c", pictures=(one, two))
    assert first.joined(Message("user", "b")) == Message("user", f"{PLACE}a\n\nb", pictures=(one,))
    assert Message("user", PLACE).joined(Message("user", "b")) == Message("user", f"{PLACE}\n\nb")
