"""The optimisers of a module: Muon for its inner matrices and AdamW for the rest, kept with its weights in a file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from specchat.tune.files import damaged, get_tensors, put_tensors
from specchat.tune.learner import Rates
from specchat.tune.muon import Muon

BETAS, CLIP = (0.9, 0.95), 1.0
OF = " of "
"""Stands between the name of a moment and that of its parameter."""


class Optimisers:
    """Trains the parameters of a module that require gradients; AdamW also takes the matrices that are `outer`."""

    def __init__(self, module: nn.Module, rates: Rates, outer: Callable[[str], bool]) -> None:
        self._module = module
        self._parameters = {name: part for name, part in module.named_parameters() if part.requires_grad}
        self._frozen = dict(module.named_parameters()).keys() - self._parameters.keys()
        inner = [name for name, part in self._parameters.items() if part.dim() == 2 and not outer(name)]
        other = [name for name in self._parameters if name not in inner]
        self._tools: list[tuple[torch.optim.Optimizer, float]] = []
        if inner:
            self._tools.append((Muon([self._parameters[name] for name in inner], lr=rates.muon), rates.muon))
        if other:
            # On a GPU it would otherwise update all tensors together, with a copy of all of them besides.
            parts = [self._parameters[name] for name in other]
            adamw = torch.optim.AdamW(parts, lr=rates.adam, betas=BETAS, weight_decay=0.0, foreach=False)
            self._tools.append((adamw, rates.adam))

    def step(self, share: float) -> None:
        """Update all parameters at `share` of the highest rates, and drop their gradients."""
        clip_grad_norm_(self._parameters.values(), CLIP)
        for tool, rate in self._tools:
            tool.param_groups[0]["lr"] = rate * share
            tool.step()
            tool.zero_grad()

    def save(self, path: Path, about: Mapping[str, str]) -> None:
        """Put weights, moments and `about` into the file `path`.

        Raises:
            OSError: it cannot be written; it is as it was.
        """
        tensors = {name: part for name, part in self._module.state_dict().items() if name not in self._frozen}
        for name, parameter in self._parameters.items():
            for key, value in self._tool_of(parameter).state[parameter].items():
                tensors[f"{key}{OF}{name}"] = value
        put_tensors(path, tensors, about)

    def load(self, path: Path) -> dict[str, str]:
        """Restore what `save` put into `path`; returns its `about`.

        Raises:
            OSError: the file is damaged, or of another module.
        """
        tensors, about = get_tensors(path)
        try:
            learnt = {name: part for name, part in tensors.items() if OF not in name}
            missing = self._module.load_state_dict(learnt, strict=False)
            if missing.unexpected_keys or set(missing.missing_keys) != self._frozen:
                raise ValueError("it is of another model")
            for key, of, name in (name.partition(OF) for name in tensors):
                if of:
                    parameter = self._parameters[name]
                    moment = tensors[key + OF + name]
                    # AdamW counts its steps on the host.
                    self._tool_of(parameter).state[parameter][key] = moment if key == "step" else moment.to(parameter)
        except (RuntimeError, KeyError, ValueError) as error:
            raise damaged(path, error) from None
        return about

    def _tool_of(self, parameter: Tensor) -> torch.optim.Optimizer:
        return next(t for t, _ in self._tools if any(parameter is p for p in t.param_groups[0]["params"]))
