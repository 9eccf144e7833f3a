"""The command that installs a package where specchat runs: a shell's own pip is often that of another Python."""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def _parts(package: str) -> list[str]:
    """The packages of an extra of specchat, `specchat[gguf]`; any other package itself."""
    from importlib.metadata import requires  # it brings thirty modules

    name, _, extra = package.rstrip("]").partition("[")
    needed = requires(name) or [] if extra else []
    return [re.split(r"[\s<>=!~;\[]", one)[0] for one in needed if f"extra == '{extra}'" in one] or [package]


def install_command(*packages: str) -> str:
    """A line for the shell, such as `pip install keyring` where that pip is this environment's."""
    python = Path(sys.executable)
    if (Path(sys.prefix) / "pipx_metadata.json").exists():  # what pip adds there is gone after an upgrade
        parts = [part for package in packages for part in _parts(package)]
        return f"pipx inject specchat {' '.join(parts)}"
    words = " ".join(f'"{package}"' if "[" in package else package for package in packages)
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == python.parent:
        return f"pip install {words}"
    if find_spec("pip") is not None:
        return f"{shlex.quote(str(python))} -m pip install {words}"
    return f"uv pip install --python {shlex.quote(str(python))} {words}"  # uv makes environments without pip
