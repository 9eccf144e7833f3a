"""Commands that start a program apart: it sees the system's programs, read only, an empty /tmp, and no network.

Either needs Linux with user namespaces: bubblewrap, or the programs of util-linux.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

SEEN = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache",
)  # fmt: skip
"""All that a program can read. Homes, sockets, keys and mounted disks are elsewhere."""
MEMORY = 1 << 30
"""Bytes of addresses a process; processes are bounded too, and the first to go where memory ends."""
FILES = 64 << 20
"""Bytes of files in /tmp."""
PROCESSES = 32
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
}
PROCESSOR_S = 20
"""Seconds of a processor that a process gets, should nobody be there to end it."""
_PROBE_S = 5
_BOUNDS = (
    "prlimit",
    f"--as={MEMORY}",
    f"--nproc={PROCESSES}",
    f"--fsize={FILES}",
    "--core=0",
    f"--cpu={PROCESSOR_S}",
    "--",
)
_FIRST_TO_GO = ("choom", "-n", "1000", "--")
_AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
"""Linux bounds the processes of every user but root."""

_ROOT = f"""
set -e
mount -t tmpfs -o size={FILES},mode=0755,nosuid,nodev tmpfs /tmp
cd /tmp
for path in {" ".join(SEEN)} /dev/null /dev/zero /dev/random /dev/urandom; do
    [ -e "$path" ] || continue
    mkdir -p ".${{path%/*}}"
    if [ -L "$path" ]; then cp -P "$path" ".$path"; continue; fi
    if [ -d "$path" ]; then mkdir -p ".$path"; else : > ".$path"; fi
    mount --bind "$path" ".$path"
    case "$path" in /dev/*) ;; *) mount -o remount,bind,ro ".$path" ;; esac
done
mkdir -p tmp proc .outside
mount -t proc proc proc
pivot_root . .outside
cd /tmp
umount -l /.outside
rmdir /.outside
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
"""
"""Make a root of `SEEN` and leave the system's; then give up the rights that doing so took."""


def _bubblewrap(command: Sequence[str]) -> list[str]:
    seen = [word for path in SEEN for word in ("--ro-bind-try", path, path)]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", *seen,
        "--dev", "/dev", "--proc", "/proc", "--size", str(FILES), "--tmpfs", "/tmp", "--chdir", "/tmp", "--", *command,
    ]  # fmt: skip


def _namespaces(command: Sequence[str]) -> list[str]:
    apart = ("--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup")
    return ["unshare", *apart, "--fork", "--kill-child", "--", "sh", "-c", _ROOT, "sh", *command]


BOXES: tuple[Callable[[Sequence[str]], list[str]], ...] = (_bubblewrap, _namespaces)


def boxed(command: Sequence[str]) -> list[str] | None:
    """`command` in the first box that works here; None where none does. Waits for programs."""
    for box in BOXES:
        if _works(within(box, ["true"])):
            return within(box, command)
    return None


def within(box: Callable[[Sequence[str]], list[str]], command: Sequence[str]) -> list[str]:
    """`command` in a box, with its bounds."""
    user = () if os.geteuid() else _AS_NOBODY
    return [*user, *_FIRST_TO_GO, *box([*_BOUNDS, *command])]


def _works(command: Sequence[str]) -> bool:
    if shutil.which(command[0], path=ENVIRONMENT["PATH"]) is None:
        return False
    try:
        probed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, env=dict(ENVIRONMENT)
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return probed.returncode == 0
