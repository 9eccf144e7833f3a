"""The actions there are, and the keys that each has once the user's keys.toml is taken in."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual.binding import Binding

from specchat.tui.action import Action, key_name


class Keys:
    """Actions and keys, by id; `problems` are sentences about entries of keys.toml that were not taken."""

    def __init__(self, actions: Sequence[Action[Any]], keymap: Mapping[str, str] | None = None) -> None:
        """`keymap` holds Textual's names of keys with commas between, "" for no key."""
        self.actions = actions
        self.by_id = {action.id: action for action in actions}
        self.by_slash = {action.slash: action for action in actions if action.slash}
        self.problems: list[str] = []
        self._own = {
            id: tuple(filter(None, keys.split(","))) for id, keys in (keymap or {}).items() if id in self.by_id
        }
        for id in list(self._own):
            if problem := self._problem(self.by_id[id]):
                del self._own[id]
                self.problems.append(problem)
        self._keys = {action.id: self._own.get(action.id, self._left(action)) for action in actions}

    @property
    def changed(self) -> tuple[str, ...]:
        """The actions that keys.toml gives other keys."""
        return tuple(self._own)

    def of(self, id: str) -> tuple[str, ...]:
        return self._keys[id]

    def shown(self, id: str) -> str:
        """The keys as people write them; empty where there is none."""
        return " or ".join(map(key_name, self._keys[id]))

    def first(self, id: str) -> str:
        """The key to name in a hint; empty where there is none."""
        return key_name(self._keys[id][0]) if self._keys[id] else ""

    def named(self, id: str) -> str:
        """The key to name in a sentence; where there is none the slash command, or else the title."""
        action = self.by_id[id]
        return self.first(id) or (f"/{action.slash}" if action.slash else f"“{action.title}”")

    def bindings(self) -> Iterator[Binding]:
        """The keys of all actions, for a screen whose `check_action` knows where the focus is."""
        for action in self.actions:
            if not action.fixed and self._keys[action.id]:
                # With priority a key has done its work before the next one of the same burst looks where the focus is.
                yield Binding(",".join(self._keys[action.id]), f"do('{action.id}')", show=False, priority=True)

    def _left(self, action: Action[Any]) -> tuple[str, ...]:
        """The shipped keys of an action, but those that keys.toml gives to others."""
        taken = {key for id, keys in self._own.items() if _meet(self.by_id[id], action) for key in keys}
        return tuple(key for key in action.keys if key not in taken)

    def _problem(self, action: Action[Any]) -> str:
        if action.fixed:
            return f"keys.toml: the key of {action.id} cannot be moved."
        for key in self._own[action.id]:
            if action.where in ("anywhere", "prompt") and len(key) == 1:
                return (
                    f"keys.toml: {action.id} works everywhere, so {key} could not be typed any more; add ctrl or alt."
                )
            for other in self.actions:
                if other is action or not _meet(action, other) or key not in self._own.get(other.id, other.keys):
                    continue
                spare = len(other.keys) > 1 and other.id not in self._own
                if not spare or (other.fixed and action.where == "prompt"):
                    return (
                        f"keys.toml: {key_name(key)} is the key of {other.id} already; give that one another key first."
                    )
        return ""


def _meet(one: Action[Any], other: Action[Any]) -> bool:
    """True if both can be meant by a key pressed in one place."""
    return one.where == other.where or "anywhere" in (one.where, other.where)
