"""What is read whole is read within bounds: devices have no end, and pipes may have nobody who writes."""

import errno
import io
import os
from pathlib import Path

import pytest

from specchat.config.catalog import load_catalog
from specchat.config.errors import ConfigError
from specchat.reading import TYPED_BYTES, read_text, read_typed, read_whole

ZERO = Path("/dev/zero")
needs_zero = pytest.mark.skipif(not ZERO.exists(), reason="the system has no device without end")


def error_of(path: Path, most: int = 100, pipes: bool = False) -> int | None:
    with pytest.raises(OSError) as caught:
        read_whole(path, most, pipes=pipes)
    assert caught.value.strerror
    return caught.value.errno


@needs_zero
def test_a_device_without_end_is_left(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(ZERO)
    assert error_of(tmp_path / "linked") == errno.EINVAL
    assert error_of(tmp_path / "linked", pipes=True) == errno.EFBIG


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert error_of(tmp_path / "pipe") == errno.EINVAL
    assert error_of(tmp_path / "pipe", pipes=True) == errno.EPIPE


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa\r\nb" + b"c" * 93)
    assert read_text(tmp_path / "file", 100).startswith("a\nbc")
    assert error_of(tmp_path / "file", 98) == errno.EFBIG
    assert error_of(tmp_path) in (errno.EINVAL, errno.EISDIR)
    assert error_of(tmp_path / "none") == errno.ENOENT


def test_what_is_piped_in_is_read_up_to_its_bound() -> None:
    assert len(read_typed(io.BytesIO(bytes(TYPED_BYTES)))) == TYPED_BYTES
    with pytest.raises(OverflowError):
        read_typed(io.BytesIO(bytes(TYPED_BYTES + 1)))


@needs_zero
def test_a_configuration_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models.toml").symlink_to(ZERO)
    with pytest.raises(ConfigError, match=r"models.toml cannot be read \(it has more than 256 KiB\)"):
        load_catalog(tmp_path / "models.toml")


DEEP = ".".join("a" * 20_000)
LONG = "k" * 9_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{DEEP} = 1", "nested too deeply"),
        (f"[pair.{DEEP}]\nx = 1", "nested too deeply"),
        (f"[[pair]]\ntarget.{DEEP} = 1", "nested too deeply"),
        (f"schema = 1\nx = {'[' * 20_000}{']' * 20_000}", "nested too deeply"),
        (f"schema = 1\n{'a . ' * 300}a = 1", "a is not a known key"),
        (f'schema = 1\n[[pair]]\nid = "x"\n{"target . " * 300}a = 1', "is not a known key"),
        (f"schema = 1\n{LONG} = 1", "k… is not a known key"),
        ("schema = 1\n" + "\n".join(f"k{n} = 1" for n in range(10_000)), "k9 is not a known key"),
        (f'schema = "{LONG}"', "should be"),
    ],
)
def test_a_mistake_of_any_size_is_told_in_some_sentences(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_catalog(path)
    assert len(caught.value.message) < 1_000
