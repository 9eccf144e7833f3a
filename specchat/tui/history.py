"""Prompts typed before, kept across runs."""

import json
from pathlib import Path

from specchat.private import FOLDER, opener
from specchat.reading import read_whole

_KEPT = 500
_LONGEST = 20_000
"""Characters above which a prompt is not kept: the file is read at every start."""


class PromptHistory:
    """Walks through earlier prompts, newest first; what was being typed comes back in its place, until one is sent.

    The file holds one JSON string a line. Without a file, or where it cannot be read or written, prompts are kept
    for this run only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._prompts = _read(path) if path else []
        self._at = len(self._prompts)
        self._typed: dict[int, str] = {}

    def add(self, prompt: str) -> None:
        """Remember a prompt that was sent."""
        self._typed.clear()
        if prompt.strip() and len(prompt) <= _LONGEST and self._prompts[-1:] != [prompt]:
            self._prompts.append(prompt)
            if self._path is not None:
                _append(self._path, prompt)
        self._at = len(self._prompts)

    def older(self, current: str) -> str | None:
        """The prompt before the one shown, None when there is none; from an emptied box it is the newest."""
        self._keep(current)
        if not current.strip():
            self._at = len(self._prompts)
        if self._at == 0:
            return None
        self._at -= 1
        return self._shown()

    def search(self, query: str, most: int) -> list[tuple[int, str]]:
        """The latest `most` prompts that hold all words of `query` in any case, newest first, each with its number."""
        words = query.casefold().split()
        found: dict[str, int] = {}
        for number in range(len(self._prompts) - 1, max(len(self._prompts) - _KEPT, 0) - 1, -1):
            prompt = self._prompts[number]
            if prompt not in found and all(word in prompt.casefold() for word in words):
                found[prompt] = number
                if len(found) == most:
                    break
        return [(number, prompt) for prompt, number in found.items()]

    def go_to(self, number: int, current: str) -> str:
        """The prompt of that number; `older` and `newer` go on from there, and `current` comes back at the end."""
        self._keep(current)
        self._at = number
        return self._prompts[number]

    def newer(self, current: str) -> str | None:
        """The prompt after the one shown, at last what was being typed; None when there is nothing newer."""
        self._keep(current)
        if self._at >= len(self._prompts):
            return None
        self._at += 1
        return self._shown()

    def _keep(self, current: str) -> None:
        """Keep text typed over an earlier prompt in that prompt's place."""
        if current.strip():
            self._typed[self._at] = current
        else:
            self._typed.pop(self._at, None)

    def _shown(self) -> str:
        return self._typed.get(self._at, self._prompts[self._at] if self._at < len(self._prompts) else "")


def _read(path: Path) -> list[str]:
    try:
        lines = read_whole(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    prompts = []
    for line in lines[-_KEPT:]:
        try:
            prompt = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(prompt, str):
            prompts.append(prompt)
    if len(lines) > 2 * _KEPT:
        _rewrite(path, prompts)
    return prompts


def _append(path: Path, prompt: str) -> None:
    try:
        path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=opener) as file:
            file.write(json.dumps(prompt) + "\n")
    except OSError:
        return


def _rewrite(path: Path, prompts: list[str]) -> None:
    try:
        new = path.with_suffix(".new")
        with open(new, "w", encoding="utf-8", opener=opener) as file:
            file.writelines(json.dumps(prompt) + "\n" for prompt in prompts)
        new.replace(path)
    except OSError:
        return
