"""`dataclass` of the standard library, with each method written when it is first looked up.

Python writes six methods of a dataclass as text and compiles them where the class is declared. The app would spend a
fifth of its start on that, and calls few of them: so what is loaded before its first frame takes `dataclass` from here.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Declare a dataclass, as `dataclasses.dataclass` does; `eq`, `frozen` and `kw_only` are known."""
        return (lambda one: _declared(one, **options)) if cls is None else _declared(cls, **options)


def _declared(cls: type, *, eq: bool = True, frozen: bool = False, kw_only: bool = False) -> type:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one Python would work out the signature
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {name: _Unwritten(cls, name, frozen) for name in ("__init__", "__repr__")}
    if eq:
        methods["__eq__"] = _Unwritten(cls, "__eq__", frozen)
        methods["__hash__"] = _Unwritten(cls, "__hash__", frozen) if frozen else None
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    defined = {name for name in vars(cls) if name != "__hash__" or vars(cls)[name] is not None}
    for name in methods.keys() - defined:
        setattr(cls, name, methods[name])
    return cls


class _Unwritten:
    """A method that Python writes into its class when it is first looked up."""

    def __init__(self, cls: type, name: str, frozen: bool) -> None:
        self._class, self._name, self._frozen = cls, name, frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        cls, name = self._class, self._name
        if instance is None and name == "__hash__":  # `dataclasses` looks whether there is one, and calls it seldom
            return self
        written = dataclasses.make_dataclass(
            cls.__name__,
            [(part.name, part.type, part) for part in dataclasses.fields(cls)],
            namespace={item: getattr(cls, item) for item in ("__doc__", "__post_init__") if hasattr(cls, item)},
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name in ("__eq__", "__hash__"),
            frozen=self._frozen,
        )
        method = vars(written)[name]
        setattr(cls, name, method)
        return method.__get__(instance, owner)


def _refuse_to_set(_: object, name: str, __: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
