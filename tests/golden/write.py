"""Keeps the bits of this checkout as golden: `python -m tests.golden.write`, only when bits are meant to change."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.golden import drafts, models
from tests.golden.models import Bits, computed

MODELS, DRAFTS = (Path(__file__).with_name(f"{name}.json") for name in ("models", "drafts"))
Found = Mapping[str, Bits]


def golden(path: Path) -> dict[str, Found]:
    """What was kept, by kind of machine."""
    found: dict[str, Found] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(path: Path, kinds: Mapping[str, Found]) -> None:
    """Keep bits, a line a case."""
    parts = []
    for kind, cases in kinds.items():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(bits)}" for name, bits in cases.items())
        parts.append(f"{json.dumps(kind)}: {{\n{lines}\n}}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(MODELS, {"x86_64": computed(models.CASES)})
    write(DRAFTS, {"x86_64": computed(drafts.CASES)})
