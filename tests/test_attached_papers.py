"""PDF files and folders that go along with a message: their text within bounds, and nothing executed or followed."""

import os
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from specchat.attachments import folders, pdf
from specchat.attachments.files import AttachmentError, read_attachment
from specchat.attachments.folders import about_secrets, read_folder
from specchat.attachments.mentions import Attacher


def paper(path: Path, *pages: str) -> Path:
    """A PDF file with a line of text on each page, written by hand."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        resources = "<< /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /Contents {len(objects)} 0 R /Resources {resources} >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} /MediaBox [0 0 612 792] >>"
    made, places = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    made += f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    path.write_text(f"{made}startxref\n{made.index('xref')}\n%%EOF\n")
    return path


def test_the_text_of_a_paper_goes_along_by_pages(tmp_path: Path) -> None:
    read = read_attachment(paper(tmp_path / "a paper.pdf", "A fox ran.", "It slept."))
    assert read.text == "[page 1]\nA fox ran.\n\n[page 2]\nIt slept.\n"
    assert read.name.endswith("a paper.pdf")


def test_as_many_pages_as_fit_go_along(tmp_path: Path) -> None:
    path = paper(tmp_path / "a.pdf", *(f"Page of {number}." for number in range(9)))
    text = pdf.text_of(path, 80)
    assert text.startswith("[page 1]\nPage of 0.")
    assert len(text.encode()) <= 80
    assert "[page 4]" not in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("damaged", "is damaged"), ("without text", "has no text"), ("protected", "is protected by a password")],
)
def test_what_cannot_be_had_is_told(kind: str, words: str, tmp_path: Path) -> None:
    path = paper(tmp_path / "a.pdf", "" if kind == "without text" else "A fox.")
    if kind == "damaged":
        path.write_bytes(path.read_bytes()[:60])
    elif kind == "protected":
        writer = PdfWriter(clone_from=PdfReader(path))
        writer.encrypt("secret", algorithm="RC4-128")
        writer.write(path)
    with pytest.raises(AttachmentError, match=words):
        read_attachment(path)


def test_a_paper_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "TIME_S", 0.01)
    with pytest.raises(AttachmentError, match="seconds to read"):
        read_attachment(paper(tmp_path / "a.pdf", "A fox."))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with texts, and with what does not go along."""
    root = tmp_path / "src"
    for name, text in {
        "b.py": "b = 1\n",
        "a/deep/c.md": "# c\n",
        ".hidden": "x",
        ".git/config": "x",
        "node_modules/x.js": "x",
        "my.env": "KEY=1",
        "id_ed25519": "x",
        "tls.key": "x",
        "credentials.json": "x",
        "picture.png": "\0x",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    os.mkfifo(root / "pipe")
    (root / "outside").symlink_to("/etc/hostname")
    (root / "circle").symlink_to(root)
    return root


def test_text_files_of_a_folder_go_along_and_no_secrets(folder: Path) -> None:
    (folder / ".env").write_text("KEY=1")
    found = read_folder(folder)
    secrets = [folder / name for name in (".env", "credentials.json", "id_ed25519", "my.env", "tls.key")]
    assert found.secrets == [str(path) for path in secrets]
    words = about_secrets([str(path.relative_to(folder)) for path in secrets])
    assert words.startswith("Files that look like secrets stay out: .env, credentials.json, id_ed25519, 2 more. ")
    assert about_secrets(()) == ""
    assert [(Path(one.name).relative_to(folder).as_posix(), one.text) for one in found.texts] == [
        ("b.py", "b = 1\n"),
        ("a/deep/c.md", "# c\n"),
    ]


def test_a_folder_is_named_with_a_slash_at_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert [one.name for one in Attacher().attachments("What is in @src/ here?")] == ["src/b.py", "src/a/deep/c.md"]
    assert Attacher().attachments("What is in @src here?") == ()
    (folder / "b.py").write_text("b = 2\n")
    attacher = Attacher()
    assert attacher.attachments("@src/")[0].text == "b = 2\n"
    assert "src/my.env" in attacher.secrets
    assert attacher.attachments("@src/my.env")
    assert attacher.secrets == []


def test_a_folder_beyond_bounds_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 1)
    with pytest.raises(AttachmentError, match="has more text than that"):
        read_folder(folder)
    monkeypatch.setattr(folders, "LOOKED_AT", 3)
    with pytest.raises(AttachmentError, match="has over 3 files"):
        read_folder(folder)
    (folder / "empty").mkdir()
    with pytest.raises(AttachmentError, match="has no text files"):
        read_folder(folder / "empty")
