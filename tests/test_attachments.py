"""Files that go along with a message: what is read, what is refused, and fences that hold."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from specchat.attachments import files as attachments
from specchat.attachments.files import Attachment, AttachmentError, read_attachment, with_attachments

LINES = st.lists(
    st.one_of(st.text("` \t~ab>-", max_size=12), st.integers(1, 9).map("`".__mul__), st.text(max_size=5)), max_size=8
)


@given(LINES.map("\n".join), LINES.map("\n".join), st.text(max_size=12))
@example("```\nout\n```", "`````", "```.md")
@example("~~~\n", "", "a\n```\nb.py")
def test_no_text_closes_its_fence(first: str, second: str, name: str) -> None:
    message = with_attachments("Look:", [Attachment(name, first), Attachment("x.py", second)])
    fences = [token for token in MarkdownIt().parse(message) if token.type == "fence"]
    assert len(fences) == 2, message
    for fence, text in zip(fences, (first, second), strict=True):
        wanted = text if not text or text.endswith("\n") else text + "\n"
        assert fence.content == wanted.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


@pytest.mark.parametrize(
    ("name", "language"),
    [("a.py", "py"), ("dir.d/Makefile", ""), ("A.TOML", "toml"), (".bashrc", ""), ("x.a`b", ""), ("m.c++", "c++")],
)
def test_the_language_comes_from_the_suffix(name: str, language: str) -> None:
    assert with_attachments("", [Attachment(name, "x")]) == f"File {name}:\n```{language}\nx\n```"


def test_a_file_is_read_with_plain_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthr\xc3\xa9\n")
    assert read_attachment(path) == Attachment(str(path), "one\ntwo\nthré\n")


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_text("hi")
    assert read_attachment(Path("~/a")) == Attachment("~/a", "hi")


def test_names_are_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J\nb.md"
    path.write_text("hi")
    assert read_attachment(path).name == str(tmp_path / "a␛[2J b.md")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"caf\xe9", " is not UTF-8 text (byte 3)"),
        (b"a\0b", ": binary files cannot be attached, only texts, PDF and pictures."),
        ("é".encode("utf-16-le"), ": binary files cannot be attached, only texts, PDF and pictures."),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(AttachmentError) as caught:
        read_attachment(path)
    assert caught.value.message.startswith(f"{path}{words}")


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * attachments.MAX_BYTES)
    assert len(read_attachment(path).text) == attachments.MAX_BYTES
    path.write_bytes(b"x" * (attachments.MAX_BYTES + 1))
    with pytest.raises(AttachmentError, match="is over 2 MB"):
        read_attachment(path)


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        "nowhere": "No such file or directory",
        ".": "is a folder",
        "pipe": "is not a regular file",
        "a\0b": "cannot be read",
        "x" * 300: "File name too long",
    }.items():
        with pytest.raises(AttachmentError, match=words):
            read_attachment(tmp_path / name)
