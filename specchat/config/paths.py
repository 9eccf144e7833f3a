"""Places of specchat's files. The only module that knows the platform's folders.

Environment: SPECCHAT_HOME puts all folders below one; SPECCHAT_CONFIG_FILE names the settings file.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from specchat.config.errors import ConfigError
from specchat.dataclass import dataclass
from specchat.private import FOLDER, is_private, tighten

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Paths:
    """The user's folders and the files in them. Nothing exists before it is needed: see `private_folder`."""

    config: Path
    data: Path
    cache: Path
    state: Path
    runtime: Path
    """Sockets, as long as the user is logged in."""
    settings_file: Path

    @property
    def models_file(self) -> Path:
        return self.config / "models.toml"

    @property
    def keys_file(self) -> Path:
        return self.config / "keys.toml"

    @property
    def personas_file(self) -> Path:
        return self.config / "personas.toml"

    @property
    def presets_file(self) -> Path:
        return self.config / "presets.toml"

    @property
    def tools_file(self) -> Path:
        return self.config / "mcp.json"

    @property
    def prompts(self) -> Path:
        """Saved prompts, a file each."""
        return self.config / "prompts"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def engine_log(self) -> Path:
        return self.state / "engine.log"

    @property
    def tuned(self) -> Path:
        """Results of tunes."""
        return self.data / "tuned"

    @property
    def used_pairs(self) -> Path:
        """The pair chosen last, and used pairs that no models.toml declares."""
        return self.data / "used.json"

    @property
    def compiled(self) -> Path:
        """Code that the engine compiled for this processor."""
        return self.cache / "compiled"

    @property
    def read(self) -> Path:
        """Entries of long texts that pairs have read."""
        return self.cache / "read"

    @property
    def learnt(self) -> Path:
        """Estimates of `auto` for pairs on this machine."""
        return self.cache / "learnt.json"

    @property
    def gpu(self) -> Path:
        """Results of the GPU's checks."""
        return self.data / "gpu.json"

    @property
    def roundings(self) -> Path:
        """Measurements of rows in 8 bits, by model."""
        return self.data / "roundings.json"

    @property
    def chats(self) -> Path:
        return self.data / "chats.db"

    @property
    def synced(self) -> Path:
        """The state of chats and files after the last sync with a folder."""
        return self.data / "synced.json"

    @property
    def prompt_history(self) -> Path:
        return self.state / "prompts.jsonl"

    @property
    def pasted(self) -> Path:
        """Pictures that were pasted in the app, and outputs of code, for a week."""
        return self.cache / "pasted"

    @property
    def draft(self) -> Path:
        """Unsent text of the app."""
        return self.state / "draft.json"


def user_paths(environ: Mapping[str, str] = os.environ) -> Paths:
    """The folders by platform and environment.

    Raises:
        ConfigError: the environment names the home of a user that there is not.
    """
    if environ.get("SPECCHAT_HOME"):
        root = _named(environ, "SPECCHAT_HOME")
        config, data, cache, state, runtime = (root / name for name in ("config", "data", "cache", "state", "run"))
    else:
        from platformdirs import PlatformDirs

        dirs = PlatformDirs("specchat", appauthor=False)
        config, data, cache, state = (
            dirs.user_config_path,
            dirs.user_data_path,
            dirs.user_cache_path,
            dirs.user_state_path,
        )
        # Without a login there is no such folder on Linux, or one for all users, and so is what else is usual there.
        named = environ.get("XDG_RUNTIME_DIR")
        alone = sys.platform == "linux" and not (named and is_private(Path(named)))
        runtime = cache / "run" if alone else dirs.user_runtime_path
    settings = (
        _named(environ, "SPECCHAT_CONFIG_FILE") if environ.get("SPECCHAT_CONFIG_FILE") else config / "config.toml"
    )
    return Paths(config, data, cache, state, runtime, settings)


def _named(environ: Mapping[str, str], variable: str) -> Path:
    try:
        return Path(environ[variable]).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"{variable} is {environ[variable]}, but there is no such home folder. Correct it.") from None


def private_folder(folder: Path) -> Path:
    """`folder`, which is specchat's own, made where it is missing and readable for this user only.

    Raises:
        ConfigError: it cannot be made.
    """
    tighten(made_folder(folder))
    return folder


def made_folder(folder: Path) -> Path:
    """`folder`, made with its parents where it is missing, then for this user only.

    Raises:
        ConfigError: it cannot be made.
    """
    try:
        folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} cannot be made ({error.strerror}). Set SPECCHAT_HOME to a folder you can write to."
        ) from None
    return folder


def shipped(name: str) -> Path:
    """A file or folder that comes with specchat: from the installed package, or from the checkout it runs in."""
    installed = PACKAGE / "_shipped" / name
    return installed if installed.exists() else PACKAGE.parent / name


def is_shipped(path: Path) -> bool:
    """True if `path` is a configuration file that comes with specchat."""
    return path in (shipped(path.name), shipped("themes") / path.name)


def demo_model(name: str) -> Path:
    """The folder of a model of the embedded demo pair, "target" or "draft", or of its heads, by their family."""
    return PACKAGE / "demo" / name
