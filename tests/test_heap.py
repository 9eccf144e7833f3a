"""Memory of large blocks."""

import platform
import subprocess
import sys

import pytest

CODE = """
from specchat.heap import give_back_large_blocks
give_back_large_blocks()

def resident():
    return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) >> 10

blocks = [b"x" * (20 << 20)]
blocks.clear()
before = resident()
for _ in range(6):
    blocks += [b"x" * (18 << 20), b"x" * 100_000]
del blocks[::2]
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the option is glibc's")
def test_large_blocks_go_back_to_the_system() -> None:
    """Each has a small one behind it that stays."""
    grown = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 10
