"""The address of the resident engine: one socket for each version, environment and set of folders.

The name of the socket is a hash of all that an engine takes from the process that starts it, so clients that would
start unlike engines never meet. Who makes the socket holds a lock beside it as long as the engine lives.
"""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from specchat import __version__

MAX_PATH = 100
"""Bytes of a socket's path that every system takes."""
PREFIXES = (
    "ATEN_", "BITSANDBYTES_", "BNB_", "CUDA_", "DNNL_", "FBGEMM_", "HF_", "HUGGINGFACE_", "LD_", "MKL_", "NUMBA_",
    "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_", "TRANSFORMERS_", "TRITON_",
)  # fmt: skip
NAMES = {
    "ALL_PROXY", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PYTHONPATH", "SPECCHAT_GPU_FILE",
    "SPECCHAT_HOME", "SPECCHAT_KEEP_READ", "SPECCHAT_KEEP_READ_ON_DISK", "SPECCHAT_LEARNT_FILE", "SPECCHAT_PREFETCH",
    "SPECCHAT_READ_FOLDER", "SSL_CERT_DIR", "SSL_CERT_FILE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "XDG_STATE_HOME",
}  # fmt: skip
"""Variables of the environment that an engine reads."""
PACKAGE = Path(__file__).parents[1]


def address(folder: Path, loader: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The socket in `folder` for clients of this version, code and environment; None where it can have none."""
    path = folder / f"{fingerprint(loader, environ)}.sock"
    return path if hasattr(socket, "AF_UNIX") and len(os.fsencode(path)) <= MAX_PATH else None


def fingerprint(loader: str, environ: Mapping[str, str]) -> str:
    """16 hexadecimal digits that differ where engines would."""
    read = {name: value for name, value in environ.items() if name.upper() in NAMES or name.startswith(PREFIXES)}
    known = [
        __version__,
        sys.executable,
        sys.prefix,
        str(PACKAGE),
        _newest(PACKAGE / "engine"),
        loader,
        sorted(read.items()),
    ]
    return hashlib.sha256(json.dumps(known).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _newest(folder: Path) -> int:
    """When the code was changed last, in nanoseconds: a checkout changes under one version."""
    newest = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime_ns)
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                newest = max(newest, _newest(Path(entry.path)))
    return newest


@contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """The lock beside the socket at `path`, as a descriptor; None where another process holds it.

    The lock lasts as long as any process has the descriptor.
    """
    import fcntl

    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)
