"""The text of PDF files, taken out in a process of its own, with bounds on time and memory."""

import subprocess
import sys
from pathlib import Path

MAGIC = b"%PDF-"
MAX_BYTES = 100_000_000
MOST_PAGES = 1000
TIME_S = 30
"""Seconds that the text of a file may take."""
MEMORY = 2 << 30
"""Bytes of address space."""
NO_TEXT = 3
"""Exit code where no page has text."""
PROTECTED = 4
_READ = f"""
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
except (ImportError, ValueError):
    pass
import logging
logging.disable()
from pypdf import PdfReader
made = PdfReader(sys.argv[1])
if made.is_encrypted and not made.decrypt(""):
    sys.exit({PROTECTED})
left, found = int(sys.argv[2]), False
for number, page in enumerate(made.pages[:{MOST_PAGES}], 1):
    text = page.extract_text().encode("utf-8", "replace").decode().strip()
    found = found or bool(text)
    part = f"[page {{number}}]\\n{{text}}\\n\\n"
    left -= len(part.encode())
    if left < 0:
        break
    sys.stdout.buffer.write(part.encode())
sys.stdout.buffer.flush()
sys.exit(0 if found else {NO_TEXT})
"""


class PdfError(Exception):
    """A file whose text cannot be had; the message says why, and what to do."""


def text_of(path: Path, most: int) -> str:
    """Return the text of a PDF file, each page under its number, and as many pages as fit `most` bytes of UTF-8.

    Scripts and links in it are not followed. A file of pictures has no text.

    Raises:
        PdfError: it is damaged, protected, too slow, or has no text.
    """
    command = [sys.executable, "-P", "-c", _READ, str(path), str(most)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIME_S, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise PdfError(
            f"takes over {TIME_S} seconds to read. Save the pages that matter to a file of their own."
        ) from None
    except OSError as error:
        raise PdfError(f"cannot be read ({error.strerror}). Save its text to a file first.") from None
    if done.returncode == NO_TEXT:
        raise PdfError("has no text, only pictures of it. Have a program for that recognise its text first.")
    if done.returncode == PROTECTED:
        raise PdfError("is protected by a password. Save it without one first.")
    if done.returncode:
        raise PdfError("is damaged, or no PDF that can be read. Save its text to a file first.")
    return done.stdout.decode("utf-8", "replace").strip() + "\n"
