"""Kernels with a barrier, a mask or an `other` left out: what the nets and the tests have to notice.

A mutation changes the source of one kernel or helper, as the interpreter reads it, while it is `planted`.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from triton.runtime.interpreter import ASTTransformer, FunctionRewriter, InterpretedFunction

from tests.kernels.traces import forget


@dataclass(frozen=True)
class Mutation:
    """What is left out of a kernel.

    Attributes:
        kernel: as Triton's decorator leaves it.
        drop: "barrier", "mask" (and `other` with it) or "other".
        call: how the calls start that lose it, as `ast.unparse` writes them; a mutation of none is an error.
    """

    kernel: Any
    drop: str
    call: str

    def __str__(self) -> str:
        file = self.kernel.fn.__module__.rpartition(".")[2]
        return f"{file}.{self.kernel.fn.__name__}: no {self.drop} of {self.call}"


class Dropping(ASTTransformer):
    """The interpreter's own changes to the source, after one mutation."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self.dropped = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if self._mutation.drop == "barrier" and self._is_meant(node.value):
            self.dropped += 1
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._mutation.drop != "barrier" and self._is_meant(node):
            dropped = ("mask", "other") if self._mutation.drop == "mask" else ("other",)
            kept = [keyword for keyword in node.keywords if keyword.arg not in dropped]
            self.dropped += len(kept) < len(node.keywords)
            node.keywords = kept
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        changed: ast.AST = super().visit_Assign(node)
        return changed

    def _is_meant(self, node: ast.expr) -> bool:
        return ast.unparse(node).startswith(self._mutation.call)


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """Interpret the kernel with the mutation, wherever it is launched or called from."""
    kernel, dropping = mutation.kernel, Dropping(mutation)
    rewriter = FunctionRewriter(kernel.fn, **kernel.kwargs)
    rewriter.ast_transformer = dropping
    changed = rewriter.rewrite_ast()
    assert dropping.dropped, f"nothing to drop: {mutation}"
    forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(InterpretedFunction.rewritten_fn, kernel.fn, changed)
        yield
    forget()
