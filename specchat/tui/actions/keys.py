"""Which keys the actions have, once the user's keys.toml is taken in."""

from collections.abc import Mapping

from specchat.tui.actions.action import Action, key_name
from specchat.tui.actions.table import ACTIONS, BY_ID

_NO_KEY = "f99"
"""Stands for no key: Textual takes an empty entry for none at all."""


class Keys:
    """Keys by action id; `problems` are sentences about entries that were not taken."""

    def __init__(self, keymap: Mapping[str, str] | None = None) -> None:
        """`keymap` holds Textual's names of keys with commas between, "" for no key."""
        self._own = {id: tuple(filter(None, keys.split(","))) for id, keys in (keymap or {}).items() if id in BY_ID}
        self.problems: list[str] = []
        for id in list(self._own):
            if problem := self._problem(BY_ID[id]):
                del self._own[id]
                self.problems.append(problem)
        self._left = {action.id: self._not_taken(action) for action in ACTIONS if action.id not in self._own}
        """The keys of the other actions, of which those of keys.toml may take some."""

    def of(self, action: Action) -> tuple[str, ...]:
        return self._own.get(action.id) or self._left.get(action.id, ())

    def shown(self, action: Action) -> str:
        """The keys as people write them; empty where there is none."""
        return " or ".join(key_name(key) for key in self.of(action))

    def first(self, action: Action) -> str:
        """The key to tell people; empty where there is none."""
        return key_name(self.of(action)[0]) if self.of(action) else ""

    def for_textual(self) -> dict[str, str]:
        moved = {id: keys for id, keys in self._left.items() if keys != BY_ID[id].keys and not BY_ID[id].fixed}
        return {id: ",".join(keys) or _NO_KEY for id, keys in (self._own | moved).items()}

    def _not_taken(self, action: Action) -> tuple[str, ...]:
        taken = {key for id, keys in self._own.items() if _meet(BY_ID[id], action) for key in keys}
        return tuple(key for key in action.keys if key not in taken)

    def _problem(self, action: Action) -> str:
        if action.fixed:
            return f"keys.toml: the key of {action.id} cannot be moved."
        for key in self._own[action.id]:
            if action.where in ("anywhere", "prompt") and len(key) == 1:
                return (
                    f"keys.toml: {action.id} works everywhere, so {key} could not be typed any more; add ctrl or alt."
                )
            for other in ACTIONS:
                if other is action or not _meet(action, other) or key not in self._own.get(other.id, other.keys):
                    continue
                spare = len(other.keys) > 1 and other.id not in self._own
                if not spare or (other.fixed and action.where == "prompt"):
                    return (
                        f"keys.toml: {key_name(key)} is the key of {other.id} already; give that one another key first."
                    )
        return ""


def _meet(one: Action, other: Action) -> bool:
    """Whether both can be meant by a key pressed in one place."""
    return one.where == other.where or "anywhere" in (one.where, other.where)
