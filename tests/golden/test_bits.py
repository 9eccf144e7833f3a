"""Models, heads and drafts give on the processor what they gave before, to the last bit.

A difference that is meant is kept by `python -m tests.golden.write`; CONTRIBUTING.md says when.
"""

import platform
from pathlib import Path

import pytest

from specchat.engine.cpu import compiled
from tests.golden import drafts, models
from tests.golden.models import Bits
from tests.golden.write import DRAFTS, MODELS, golden

pytestmark = pytest.mark.cpu
X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the bits that were kept are those of x86-64")


def differences(found: Bits, expected: Bits) -> str:
    """Which parts differ, and some of the numbers on both sides; empty where all are the same."""
    parts = found["sha256"].keys() | expected["sha256"].keys()
    differing = [part for part in sorted(parts) if found["sha256"].get(part) != expected["sha256"].get(part)]
    if found == expected:
        return ""
    return f"{', '.join(differing)} differ; now {found['shown']}, before {expected['shown']}"


@X86_64
@pytest.mark.parametrize("name", models.CASES)
def test_models_give_the_same_bits(name: str, tmp_path: Path) -> None:
    """Whatever vectors the processor has: the compiled pass sums in one order."""
    if why := compiled.unavailable():
        pytest.skip(why)
    assert not differences(models.CASES[name](tmp_path), golden(MODELS)["x86_64"][name])


@X86_64
@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", drafts.CASES)
def test_drafts_are_the_same(name: str, tmp_path: Path) -> None:
    assert not differences(drafts.CASES[name](tmp_path), golden(DRAFTS)["x86_64"][name])


def test_every_case_is_kept() -> None:
    assert golden(MODELS)["x86_64"].keys() == models.CASES.keys()
    assert golden(DRAFTS)["x86_64"].keys() == drafts.CASES.keys()
