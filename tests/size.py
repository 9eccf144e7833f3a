"""Prints lines and files of each room, and what is too large in the package, with the change against a commit.

python -m tests.size [COMMIT]    # the last tag unless given
"""

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = {"lines of a function": 80, "parameters of a function": 8, "attributes of a class": 12}
SHOWN = 10
"""Largest ones of a kind that are named."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def rooms(path: str) -> list[str]:
    """The folders that a file counts in, outermost first: three where it is of the engine, two in the package."""
    folders = path.split("/")[:-1]
    depth = 3 if folders[:2] == ["specchat", "engine"] else 2 if folders[0] == "specchat" else 1
    return ["/".join(folders[:end]) for end in range(1, min(depth, len(folders)) + 1)]


def sizes(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind (one of `LIMITS`), name and size of each function and class in the source `text`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function):
            given = node.args
            names = [one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
            yield "lines of a function", node.name, (node.end_lineno or node.lineno) - node.lineno + 1
            more = (given.vararg is not None) + (given.kwarg is not None)
            yield "parameters of a function", node.name, len([n for n in names if n not in ("self", "cls")]) + more
        elif isinstance(node, ast.ClassDef):
            found = {
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            }
            for one in ast.walk(node):
                if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                    found |= {one.attr} if isinstance(one.value, ast.Name) and one.value.id == "self" else set()
            yield "attributes of a class", node.name, len(found)


def report(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """The tables of sources by their paths; changes are left out where there is nothing before."""
    rows = [f"{'room':32} {'lines':>8} {'files':>6}"]
    lines, files = ([Counter[str](), Counter[str]()] for _ in range(2))
    for at, sources in enumerate((now, before)):
        for path, text in sources.items():
            for name in rooms(path):
                lines[at][name] += text.count("\n")
                files[at][name] += 1
    for name in sorted(lines[0].keys() | lines[1].keys()):
        change = f" {lines[0][name] - lines[1][name]:>+8,} {files[0][name] - files[1][name]:>+6}" if before else ""
        rows.append(f"{name:32} {lines[0][name]:>8,} {files[0][name]:>6}{change}")
    large, earlier = _large(now), _large(before)
    for kind, limit in LIMITS.items():
        change = f" ({len(large[kind]) - len(earlier[kind]):+})" if before else ""
        rows.append(f"\n{len(large[kind])} beyond {limit} {kind}{change}")
        rows += [f"  {size:>4} {name}" for size, name in sorted(large[kind], reverse=True)[:SHOWN]]
    return "\n".join(rows)


def _large(sources: Mapping[str, str]) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {kind: [] for kind in LIMITS}
    for path, text in sources.items():
        if path.startswith("specchat/") and path.endswith(".py"):
            for kind, name, size in sizes(text):
                if size > LIMITS[kind]:
                    found[kind].append((size, f"{path}: {name}"))
    return found


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def _counted(path: str) -> bool:
    return path.endswith((".py", ".md")) and "/" in path


def main(commit: str | None) -> None:
    paths = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z").decode().split("\0")
    now = {p: (ROOT / p).read_text("utf-8") for p in paths if _counted(p) and (ROOT / p).is_file()}
    commit = commit or _git("tag", "--merged", "HEAD", "--sort=-creatordate").decode().partition("\n")[0]
    before: dict[str, str] = {}
    if commit:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
            for member in archive:
                if _counted(member.name) and (file := archive.extractfile(member)):
                    before[member.name] = file.read().decode()
    print(f"against {commit}\n" * bool(commit) + report(now, before))


if __name__ == "__main__":
    main(*(sys.argv[1:] or [None]))
