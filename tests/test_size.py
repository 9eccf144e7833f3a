"""The budget of lines counts what it says."""

from tests.size import report, rooms, sizes

SOURCE = """
class C:
    a: int
    def f(self, x, *, y, **z):
        self.b = self.a = x
"""


def test_rooms_are_folders_of_the_package_and_of_the_engine() -> None:
    paths = ("specchat/engine/cpu/attention/one.py", "specchat/engine/check.py", "specchat/tui/app.py", "docs/a/b.md")
    assert [rooms(path)[-1] for path in paths] == ["specchat/engine/cpu", "specchat/engine", "specchat/tui", "docs"]
    assert rooms(paths[0])[:2] == ["specchat", "specchat/engine"]


def test_sizes_of_functions_and_classes() -> None:
    assert list(sizes(SOURCE)) == [
        ("attributes of a class", "C", 2),
        ("lines of a function", "f", 2),
        ("parameters of a function", "f", 3),
    ]


def test_changes_and_what_is_too_large_are_named() -> None:
    long = "def f():\n" + "    pass\n" * 80
    told = report({"specchat/tui/a.py": long}, {"specchat/tui/a.py": "x = 1\n"})
    assert f"{'specchat/tui':32} {81:>8} {1:>6} {80:>+8} {0:>+6}" in told
    assert "1 beyond 80 lines of a function (+1)\n    81 specchat/tui/a.py: f" in told
