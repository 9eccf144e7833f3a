"""Mixtures of experts described to the compiled pass, and the buffers that they share."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.records import MIXTURE, PRODUCT_BYTES, Structure
from specchat.engine.memory.host_need import mixture_need
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.recipe import Experts, Norm, Recipe
from specchat.engine.strategy import resolved

Floats = NDArray[np.float32]
ROUTER = 2
"""Products of a layer before its router."""


class Mixtures:
    """Buffers of the mixtures of a model, for passes of up to `threads` threads."""

    def __init__(self, recipe: Recipe, threads: int) -> None:
        need = mixture_need(recipe, PREFILL_ROWS)
        self._layers = recipe.layers
        self._buffers: dict[str, NDArray[Any]] = {
            "between": np.zeros(need.between, np.float32),
            "beside": np.zeros(need.beside, np.float32),
            "gates": np.zeros(need.gates, np.float32),
            "shares": np.zeros(need.pairs, np.float32),
            "chosen": np.zeros(need.pairs, np.int64),
            "order": np.zeros((threads, need.order), np.int64),
        }
        self._wide = np.zeros(need.rows, np.float32).reshape(-1, PREFILL_ROWS * recipe.hidden)

    def described(
        self, index: int, layer: Structure, norms: Mapping[Norm, Floats], vectors: Mapping[str, Floats]
    ) -> Structure | None:
        """Describe the experts of a layer, whose record has the rest; None without. Compile `experts.py`."""
        mixture = self._layers[index].feed
        if not isinstance(mixture, Experts):
            return None
        factors = vectors[mixture.factors] if mixture.factors else None
        if mixture.factor != 1:
            factors = (np.ones(mixture.count, np.float32) if factors is None else factors) * np.float32(mixture.factor)
        # Without norms of its own the shared MLP adds to the same sums.
        wide = self._wide if mixture.apart else [self._wide[0]] * 2
        record = Structure(
            MIXTURE,
            code=resolved("specchat.engine.cpu.layers.experts:ADDRESS"),
            products=layer["products"] + ROUTER * PRODUCT_BYTES,
            activation=layer["activation"],
            post=layer["post_feed"],
            eps=layer["eps"],
            residual=layer["residual"],
            count=mixture.count,
            top=mixture.top,
            renormalised=mixture.renormalised,
            sigmoid=mixture.sigmoid,
            groups=mixture.groups[0],
            kept_groups=mixture.groups[1],
            shared_row=2 * LANES * panels_for(mixture.shared.width) if mixture.shared else 0,
            shared_gate=mixture.shared_gate is not None,
            order_row=self._buffers["order"].shape[1],
            correction=vectors[mixture.correction] if mixture.correction else None,
            factors=factors,
            **self._buffers,
            **dict(zip(("sums", "shared_sums", "inputs", "shared_inputs"), wide, strict=False)),
        )
        if mixture.apart:
            names = ("router_norm", "pre_experts", "post_experts", "pre_shared", "post_shared")
            record.set(**{name: norms[norm] for name, norm in zip(names, mixture.apart.all, strict=True)})
        return record
