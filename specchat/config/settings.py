"""config.toml: what the user prefers, below the command line and the environment."""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from specchat import private
from specchat.attention import Notify
from specchat.config.errors import ConfigError
from specchat.config.files import read_tables
from specchat.config.paths import made_folder
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Acceptance, ContextPolicy
from specchat.reading import read_text


@dataclass(frozen=True)
class UserSettings:
    """None leaves a choice to the pair; without a `seed` each reply draws a new one. `max_tokens` limits a reply."""

    theme: str | None = None
    pair: str | None = None
    strategy: str | None = None
    draft_length: int | None = None
    acceptance: Acceptance | None = None
    seed: int | None = None
    max_tokens: int | None = None
    system: str | None = None
    context: ContextPolicy | None = None
    copy_saved_chats: bool | None = None
    keep_last_question: bool | None = None
    """False keeps nothing of `ask`; otherwise `--continue` goes on with its last exchange."""
    engine_minutes: int | None = None
    """Minutes that the engine stays loaded after the last window is closed."""
    gpu_minutes: int | None = None
    """Minutes without a request after which the engine gives back a GPU's memory; 0: never."""
    notify: Notify | None = None
    """How the terminal tells of a reply that ends while one looks elsewhere."""
    sync_folder: str | None = None
    """A folder that other machines have too; chats are synced with its files."""
    keep_read: str | None = None
    """Main memory for what the engine has read, such as "2 GiB"."""
    keep_read_on_disk: str | None = None
    """Room on disk for long texts of that."""
    tools: bool | None = None
    """True if new chats use the tools of the servers in mcp.json."""
    tool_seconds: int | None = None
    """Seconds that a call of a tool may take."""
    model_folders: Sequence[str] | None = None
    """Folders to look for models in, beside those of other programs."""


def load_settings(path: Path) -> UserSettings:
    """The settings in `path`; all defaults where there is no such file.

    Raises:
        ConfigError: the file is wrong.
    """
    return UserSettings(**read_tables(path, "settings", optional=True))


def save_setting(path: Path, key: str, value: str | bool) -> None:
    """Set one setting and leave the rest of the file, comments included, as it is. Never half-written.

    Raises:
        ConfigError: the file is wrong already, there is no such setting, or the file cannot be written.
    """
    from specchat.config.checks import checked
    from specchat.config.tables import SettingsTable

    before = read_tables(path, "settings", optional=True)
    text = read_text(path) if path.exists() else ""
    line = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    pattern = re.compile(rf"^{re.escape(key)}\s*=.*$", re.MULTILINE)
    text = pattern.sub(lambda _: line, text, count=1) if pattern.search(text) else f"{line}\n{text}"
    try:
        changed = checked(SettingsTable, tomllib.loads(text), path)
    except tomllib.TOMLDecodeError:
        changed = None
    if changed != {**before, key: value}:  # the key's value goes over several lines, say
        raise ConfigError(f"{key} cannot be changed in {path}. Change it there by hand.")
    _replace(path.resolve(), text)


def _replace(path: Path, text: str) -> None:
    made_folder(path.parent)
    try:
        private.replace(path, text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from None
