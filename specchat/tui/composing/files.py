"""The files that can be mentioned: below the working directory, or in a folder that was named."""

import os
import re
from time import monotonic

from specchat.attachments.mentions import Typed, can_be_mentioned, mention
from specchat.tui.composing.completion import Completion, Suggestion
from specchat.tui.composing.fuzzy import ranked
from specchat.tui.composing.listing import MOST_FILES, PathListing, entries, is_folder, list_files

_KEPT = 10.0
"""Seconds a list is good for."""
_OFFERED = 50
_BY_FOLDER = re.compile(r"/|~|\.\.?/|[A-Za-z]:[\\/]")


class FileLister:
    """Lists files for completion. All methods wait for the disk: call them in a thread."""

    def __init__(self) -> None:
        self._listing: PathListing | None = None
        self._root = ""
        self._until = 0.0

    def complete(self, typed: Typed, column: int) -> Completion | None:
        """Files for the mention `typed`, which ends at `column`; None where none fit.

        A folder with its slash can be meant itself, so that none in it is marked.
        """
        if _BY_FOLDER.match(typed.path):
            choices, note = _in_folder(typed.path), ""
        else:
            listing = self._below(os.getcwd())
            choices = [
                Suggestion(mention(path) + " ", path, places=places)
                for path, places in ranked(typed.path, listing.paths, str, _OFFERED)
            ]
            note = f"the first {len(listing.paths):,} files only" if listing.capped else ""
        whole = typed.path.endswith("/") and os.path.isdir(os.path.expanduser(typed.path))
        return Completion(typed.start, column, tuple(choices), note, eager=not whole) if choices else None

    def _below(self, root: str) -> PathListing:
        if self._listing is None or root != self._root or monotonic() > self._until:
            self._listing, self._root = list_files(root), root
            self._until = monotonic() + _KEPT
        return self._listing


def _in_folder(typed: str) -> list[Suggestion]:
    """Files and folders in the folder that `typed` names, and fit what follows its last slash."""
    folder, _, name = typed.rpartition("/")
    folder = folder + "/" if "/" in typed else ""
    if not folder:  # a lone ~
        return [Suggestion("@~/", "~/")]
    fitting = [
        entry
        for entry in entries(os.path.expanduser(folder))[:MOST_FILES]
        if can_be_mentioned(entry.name) and entry.name.startswith(".") <= name.startswith(".")
    ]
    choices = []
    for entry, places in ranked(name, fitting, lambda entry: entry.name, _OFFERED):
        inside = is_folder(entry, follow=True)
        path = folder + entry.name + "/" * inside
        text = mention(path).removesuffix('"') if inside else mention(path) + " "
        choices.append(Suggestion(text, path, places=[len(folder) + at for at in places]))
    return choices
