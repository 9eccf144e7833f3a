"""The command that installs a package where specchat runs: a shell's own pip is often that of another Python."""

import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def install_command(*packages: str) -> str:
    """A line for the shell, such as `pip install keyring` where that pip is this environment's."""
    words = " ".join(f'"{package}"' if "[" in package else package for package in packages)
    python = Path(sys.executable)
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == python.parent:
        return f"pip install {words}"
    if find_spec("pip") is not None:
        return f"{shlex.quote(str(python))} -m pip install {words}"
    return f"uv pip install --python {shlex.quote(str(python))} {words}"  # uv makes environments without pip
