"""No file of the package imports itself by way of others, and tests import only what the package has."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules(package: Path) -> dict[str, Path]:
    """The files of `package` by the names they are imported by."""
    names = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def statements(path: Path) -> Iterator[ast.AST]:
    """All statements of a file, also those in others; expressions are ten times as many."""
    found: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while found:
        yield (node := found.pop())
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, [])
            found += inner if isinstance(inner, list) else []


def imported(name: str, path: Path, known: set[str]) -> Iterator[str]:
    """What the file `path`, imported as `name`, imports anywhere in it, as far as it is `known`."""
    folder = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{source}.{alias.name}"
                yield from [found] if found in known else [source] if source in known else []


def circle(package: Path) -> list[str]:
    """The first circle of imports in `package`, from a file back to itself; empty where there is none."""
    files = modules(package)
    try:
        TopologicalSorter({name: set(imported(name, path, set(files))) for name, path in files.items()}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_the_package_has_no_circle() -> None:
    assert circle(ROOT / "specchat") == []


@pytest.mark.parametrize(
    "back",
    [
        "from made.one import f",
        "import made.one",
        "from . import one",
        "from .one import f",
        "def g():\n    from made.one import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made.one import f",
    ],
)
def test_circles_are_found(back: str, tmp_path: Path) -> None:
    package = tmp_path / "made"
    (package / "inner").mkdir(parents=True)
    for name, text in (("__init__", ""), ("one", "from made.inner import deep"), ("two", back)):
        (package / f"{name}.py").write_text(text)
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "deep.py").write_text("")
    assert circle(package) == []
    (package / "inner" / "deep.py").write_text("from .. import two")
    assert set(circle(package)) == {"made.one", "made.inner.deep", "made.two"}


def missing(tests: Path, package: Path) -> list[str]:
    """Modules and names that the files in `tests` import from `package`, and that no file of it has."""
    names = {package.name: {path.name for path in package.iterdir() if path.is_dir()}}
    files = modules(package)
    for name in files:
        above, _, last = name.rpartition(".")
        names.setdefault(above, set()).add(last)
    used = [(path.name, *each) for path in tests.rglob("*.py") for each in named(path.read_text("utf-8"), package.name)]
    for name in {module for _, module, _ in used} & files.keys():
        names.setdefault(name, set()).update(bound(files[name]))
    return [f"{file}: {module}.{name}" for file, module, name in used if name not in names.get(module, ())]


def named(text: str, package: str) -> Iterator[tuple[str, str]]:
    """Modules and names that a text of Python imports from `package`, in programs within it too."""
    for found in re.finditer(rf"^[ \t]*from ({package}[\w.]*) import (\([^)]*\)|[^\n]*)", text, re.M):
        for name in re.sub(r"#.*|[()]", "", found[2].partition(";")[0]).split(","):
            if (first := name.split(" as ")[0].strip()).isidentifier():
                yield found[1], first


def bound(path: Path) -> Iterator[str]:
    """The names that statements of a file bind, at any depth."""
    for node in statements(path):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name for each in names)
            case ast.Assign(targets=targets):
                yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_tests_import_only_what_the_package_has() -> None:
    assert missing(ROOT / "tests", ROOT / "specchat") == []
