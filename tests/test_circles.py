"""No file of the package imports itself by way of others, and tests import only what the package has."""

import ast
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
    for name, path in modules(package).items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        above, _, last = name.rpartition(".")
        names.setdefault(above, set()).add(last)
        made = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
        assigned = {node.id for node in nodes if isinstance(node, ast.Name)}
        given = {each.asname or each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}
        names.setdefault(name, set()).update(made, assigned, given)
    sources = [(path, node) for path in tests.rglob("*.py") for node in statements(path)]
    froms = [(path.name, node) for path, node in sources if isinstance(node, ast.ImportFrom) and node.module]
    used = [(file, node.module, each.name) for file, node in froms for each in node.names]
    return [f"{file}: {m}.{n}" for file, m, n in used if m.split(".")[0] == package.name and n not in names.get(m, ())]


def test_tests_import_only_what_the_package_has() -> None:
    assert missing(ROOT / "tests", ROOT / "specchat") == []
