"""The sandbox of chat templates: no access to the outside, bounded time and memory."""

from collections.abc import Iterable
from math import inf
from time import thread_time
from typing import Any

from jinja2 import nodes
from jinja2.filters import do_format, do_indent, do_map, do_sum
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

from specchat.engine.text.sizes import (
    ITEM_SIZE,
    METHOD_SIZES,
    MOST_CHARACTERS,
    TemplateBoundError,
    check_size,
    formatted_size,
    unit_size,
    weight_of,
)

MOST_MADE = 10 * MOST_CHARACTERS
"""Limit of all texts together that one prompt makes."""
MOST_BITS = 100_000
"""Limit of a number, in bits."""
MOST_INDENT = 16
"""Limit of the columns that a level of JSON is indented by."""
_UNUSED = ("batch", "center", "pprint", "slice", "urlize", "wordwrap", "xmlattr")
"""Filters that can make any amount of text, and that no chat needs."""
_METHODS = frozenset({"center", "expandtabs", "format_map", "ljust", "rjust", "translate", "zfill"})
"""Methods of texts of the same kind."""

_QUEUE = frozenset({"append", "pop"})
"""Methods of lists with which templates keep account of calls."""


@pass_context
def _printed(context: Context, value: Any) -> Any:
    """The value of an action. As it takes the context, jinja leaves it until the template runs."""
    return value if isinstance(value, str) else _sandbox(context).weighed(value)


class Sandbox(ImmutableSandboxedEnvironment):
    """A jinja environment that checks time in loops and macros, and the size of results."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_printed, optimized=False, **options)
        self._ends = self._left = inf
        del self.globals["lipsum"]
        for name in _UNUSED:
            del self.filters[name]
        self.filters |= _FILTERS

    def allow(self, seconds: float) -> None:
        """Allow templates `seconds` of this thread's CPU time from now on, and MOST_MADE characters."""
        self._ends, self._left = thread_time() + seconds, MOST_MADE

    def tick(self) -> bool:
        """Return True within the time limit.

        Raises:
            TemplateBoundError: the time is over.
        """
        if thread_time() > self._ends:
            raise TemplateBoundError("it takes too long")
        return True

    def count(self, size: int) -> None:
        """Count characters that are made, before they take memory.

        Raises:
            TemplateBoundError: they are too many, at once or together.
        """
        self._left -= size
        check_size(size if self._left >= 0 else MOST_MADE)

    def weighed(self, value: Any) -> Any:
        """The value, once its text is known to be short: parts of it may stand in many places, as in [x, x].

        Raises:
            TemplateBoundError: the text is too long.
        """
        self.count(weight_of(value))
        return value

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the texts that a template or a macro of it writes."""
        return "".join(self._counted(pieces))

    def _counted(self, pieces: Iterable[str]) -> Iterable[str]:
        for piece in pieces:
            self.count(len(piece))
            yield piece

    def joined(self, *values: object) -> str:
        """Concatenate values as text, like `~`."""
        self.weighed(values)
        return "".join(map(str, values))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method or function, whose result is counted; macros count what they write."""
        if isinstance(__obj, Macro):
            return super().call(__context, __obj, *args, **kwargs)
        method = getattr(__obj, "__wrapped__", __obj)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str) and name == "join" and args:
            args = ([*args[0]],)
        given = {name: value for name, value in kwargs.items() if not name.startswith("_")}  # jinja's own variables
        __self.count(weight_of((args, given)))
        if isinstance(text, str) and name in METHOD_SIZES:
            __self.count(METHOD_SIZES[name](text, *args, **given))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, list):
            __self.count(ITEM_SIZE * len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            bits = left.bit_length() if isinstance(left, int) else 0
            check_size(bits * right if isinstance(right, int) else 0, MOST_BITS)
        elif operator == "%" and isinstance(left, str):
            self.count(formatted_size(left, right))
        elif operator == "*":
            size, times = (left, right) if hasattr(left, "__len__") else (right, left)
            if hasattr(size, "__len__") and isinstance(times, int):
                self.count(len(size) * times * unit_size(size))
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            self.count((len(left) + len(right)) * unit_size(left))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, list) and attr in _QUEUE:  # a template's own lists, or ours of this prompt alone
            return True
        return not (isinstance(obj, str) and attr in _METHODS) and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        return _Bounded().visit(tree)  # type: ignore[no-any-return]


def _sandbox(context: Context) -> Sandbox:
    assert isinstance(context.environment, Sandbox)
    return context.environment


@pass_context
def _formatted(context: Context, value: str, *args: Any, **kwargs: Any) -> str:
    _sandbox(context).count(formatted_size(str(value), *args, **kwargs))
    return do_format(value, *args, **kwargs)


@pass_context
def _replaced(context: Context, value: Any, old: str, new: str, count: int | None = None) -> Any:
    return _sandbox(context).call(context, str(value).replace, str(old), str(new), -1 if count is None else count)


@pass_context
def _joined(context: Context, value: Iterable[Any], d: str = "", attribute: str | None = None) -> Any:
    sandbox = _sandbox(context)
    values = sandbox.weighed([*(value if attribute is None else do_map(context, value, attribute=attribute))])
    return sandbox.call(context, str(d).join, [str(one) for one in values])


@pass_context
def _indented(context: Context, text: str, width: int | str = 4, *args: Any, **kwargs: Any) -> str:
    columns = len(width) if isinstance(width, str) else width
    _sandbox(context).count(len(text) + columns * (len(text.splitlines()) + 1))
    return do_indent(text, width, *args, **kwargs)


@pass_context
def _listed(context: Context, value: Iterable[Any]) -> list[Any]:
    listed = [*value]
    _sandbox(context).count(ITEM_SIZE * len(listed))
    return listed


@pass_context
def _summed(context: Context, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):  # lists, which grow with each one added
        raise TemplateBoundError("it makes too long a text")
    return do_sum(context.environment, values, attribute, start)


@pass_context
def _string(context: Context, value: Any) -> str:
    return _sandbox(context).joined(value)


_FILTERS = {
    "format": _formatted, "replace": _replaced, "join": _joined, "indent": _indented, "list": _listed, "sum": _summed,
    "string": _string,
}  # fmt: skip
"""Filters of jinja that count what they make."""


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

    def visit_List(self, node: nodes.List) -> nodes.Node:
        """Weigh the items, so that no list of lists doubles for ever."""
        self.generic_visit(node)
        return node if all(isinstance(one, nodes.Const) for one in node.items) else _call("weighed", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return node if all(isinstance(one.value, nodes.Const) for one in node.items) else _call("weighed", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        loaded = node.ctx == "load" and not all(isinstance(one, nodes.Const) for one in node.items)
        return _call("weighed", node) if loaded else node

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
