"""The sandbox of chat templates: no access to the outside, and bounded time."""

import re
from math import inf
from time import thread_time
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.filters import do_format
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MOST_CHARACTERS = 50_000_000
"""Limit of a text in characters, or of a list in items, that one operation makes."""
MOST_BITS = 100_000
"""Limit of a number, in bits."""
_WIDTH = re.compile(r"\d{6}|\*")
"""A width in a format that no prompt needs."""


_PADDING = frozenset({"center", "ljust", "rjust", "zfill"})
"""Methods that pad a text to any length."""

_QUEUE = frozenset({"append", "pop"})
"""Methods of lists with which templates keep account of calls."""


class TemplateBoundError(jinja2.TemplateError):
    """A template takes more time or memory than a chat needs."""


class Sandbox(ImmutableSandboxedEnvironment):
    """A jinja environment that checks time in loops and macros, and the size of results."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ends = inf
        del self.globals["lipsum"], self.filters["center"]
        self.filters["format"] = _formatted

    def allow(self, seconds: float) -> None:
        """Allow templates `seconds` of this thread's CPU time from now on."""
        self._ends = thread_time() + seconds

    def tick(self) -> bool:
        """Return True within the time limit.

        Raises:
            TemplateBoundError: the time is over.
        """
        if thread_time() > self._ends:
            raise TemplateBoundError("it takes too long")
        return True

    def joined(self, *values: object) -> str:
        """Concatenate values as text, like `~`."""
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            bits = left.bit_length() if isinstance(left, int) else 0
            _check_size(bits * right if isinstance(right, int) else 0, MOST_BITS)
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        elif operator == "*":
            size, times = (left, right) if hasattr(left, "__len__") else (right, left)
            if hasattr(size, "__len__") and isinstance(times, int):
                _check_size(len(size) * times)
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _check_size(len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, list) and attr in _QUEUE:  # a template's own lists, or ours of this prompt alone
            return True
        return not (isinstance(obj, str) and attr in _PADDING) and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return _Bounded().visit(tree)  # type: ignore[no-any-return]


def _check_size(size: int, most: int = MOST_CHARACTERS) -> None:
    if size > most:
        raise TemplateBoundError("it makes too long a text")


def _check_format(form: str) -> None:
    if _WIDTH.search(form):
        raise TemplateBoundError("it makes too long a text")


def _formatted(value: str, *args: Any, **kwargs: Any) -> str:
    _check_format(str(value))
    return do_format(value, *args, **kwargs)


class _Bounded(NodeTransformer):
    """A visitor that inserts the sandbox's checks into a template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _ticking())
        node.test = None if node.test is None else nodes.And(_call("tick"), node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _ticking())
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", *node.nodes)


def _ticking() -> nodes.Node:
    return nodes.ExprStmt(_call("tick"))


def _call(name: str, *values: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(values), [], None, None)


class Assignable(Namespace):
    """A message whose fields a template may set, which jinja allows only for namespaces."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)
