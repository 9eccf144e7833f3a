"""The kinds of models that can be loaded. The configuration asks too, so torch stays out of here."""

from collections.abc import Mapping

DEFAULT_BACKEND = "native"
BACKENDS: Mapping[str, str] = {DEFAULT_BACKEND: "specchat.engine.loading.native:load"}
"""By name the "module:function" that loads a pair of this kind; see `worker.Loader`."""
