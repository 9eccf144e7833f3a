"""`dataclass` of the standard library, with each method written when it is first called.

Python writes six methods of a dataclass as text and compiles them where the class is declared. The app would spend a
fifth of its start on that, and calls few of them: so what is loaded before its first frame takes `dataclass` from here.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Declare a dataclass, as `dataclasses.dataclass` does; `__init__` takes all fields."""
        return (lambda one: _declared(one, **options)) if cls is None else _declared(cls, **options)


def _declared(cls: type, *, eq: bool = True, frozen: bool = False, kw_only: bool = False) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one Python would work out the signature
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {name: _unwritten(cls, name, frozen) for name in ("__init__", "__repr__")}
    if eq:
        methods["__eq__"] = _unwritten(cls, "__eq__", frozen)
        methods["__hash__"] = _unwritten(cls, "__hash__", frozen) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    defined = {name for name in vars(cls) if name != "__hash__" or vars(cls)[name] is not None}
    for name in methods.keys() - defined:
        setattr(cls, name, methods[name])
    return cls


def _unwritten(cls: type, name: str, frozen: bool) -> Callable[..., Any]:
    """A method that has Python write the one called `name`, puts that into its stead, and calls it."""

    def method(self: object, *args: Any, **kwargs: Any) -> Any:
        setattr(cls, name, _init(cls, frozen) if name == "__init__" else _written(cls, name, frozen))
        return getattr(cls, name)(self, *args, **kwargs)

    return method


def _written(cls: type, name: str, frozen: bool) -> Any:
    kind = dataclasses.make_dataclass(
        cls.__name__,
        [(part.name, part.type, part) for part in dataclasses.fields(cls)],
        namespace={"__doc__": cls.__doc__},
        init=False,
        repr=name == "__repr__",
        eq=name in ("__eq__", "__hash__"),
        frozen=frozen,
    )
    return getattr(kind, name)


def _init(cls: type, frozen: bool) -> Any:
    """`__init__` alone: Python would write two methods more with it."""
    scope: dict[str, Any] = {"_put": object.__setattr__, "_unset": dataclasses.MISSING}
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for part in dataclasses.fields(cls):
        name = value = part.name
        default = ""
        if part.default is not dataclasses.MISSING:
            scope[f"default_{name}"], default = part.default, f"=default_{name}"
        elif part.default_factory is not dataclasses.MISSING:
            scope[f"new_{name}"], default = part.default_factory, "=_unset"
            value = f"new_{name}() if {name} is _unset else {name}"
        (named if part.kw_only else plain).append(name + default)
        lines.append(f"_put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return scope["__init__"]


def _refuse_to_set(_: object, name: str, __: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
