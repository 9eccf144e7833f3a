"""Free main memory of this machine."""

import os
from pathlib import Path


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of main memory available without swapping; None where the system does not report it."""
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
