"""State that the launches of a pass share, and the residual stream between them.

An update of the stream waits until an operation reads the stream. It joins the launch of the norms before that
operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from specchat.engine.device.attention import Placed
from specchat.engine.device.buffers import Buffers, Views
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.text_memory import TextRows
from specchat.engine.device.weights import ModelWeights
from specchat.engine.formats.layout import Weight
from specchat.engine.kernels import ahead
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import NormOf, OtherNorm, ResidualUpdate, add_rms_norm
from specchat.engine.kernels.products import multiply
from specchat.engine.program.ops import Half
from specchat.engine.recipe import Activation, Matrix, Norm


class ModelParts(NamedTuple):
    """The parts of a model on a device that operations use.

    Attributes:
        norms: weights of norms, float32, the last one times the factor on logits.
    """

    weights: ModelWeights
    norms: dict[Norm, Tensor]
    buffers: Buffers


class StreamUpdate(NamedTuple):
    """An update of the residual stream.

    Attributes:
        parts: float32 [splits, PROMPT_ROWS, hidden], the sums of a product, or those of a mixture.
        post: norm of the update, if any.
        skip: int32 [1]; non-zero adds nothing.
        half: the half of the layer that made it.
        scalar: float32 [1], factor on the stream after the update.
        earlier: int32 [1]; where it and `skip` are set, `scalar` is left out.
    """

    parts: Tensor | MixtureOutput
    post: Norm | None
    factor: float
    skip: Tensor | None
    half: Half
    scalar: Tensor | None = None
    earlier: Tensor | None = None


@dataclass
class Launches:
    """A pass on its way through the layers.

    Attributes:
        texts: that the rows go on from; one, as `at` says, unless there are several.
        last: int32 [1], the last row that counts, for which alone experts are read; None: all do.
        deep: number of first layers after which rows are added to those of pictures.
        layer: index of the current layer, and `half` that of the operation.
        values: what operations wrote that is not in a buffer of its own, by name.
    """

    model: ModelParts
    at: Placed
    texts: Sequence[TextRows]
    skips: SkipFlags | None = None
    last: Tensor | None = None
    deep: int = 0
    layer: int = -1
    half: Half = "mixer"
    values: dict[str, MixtureOutput] = field(default_factory=dict)
    _update: StreamUpdate | None = None
    _norms: list[tuple[Norm | None, Tensor]] = field(default_factory=list)
    _recorded: int = -1

    @property
    def views(self) -> Views:
        """The buffers of the operations of the current half."""
        return self.model.buffers.layers[self.layer][self.half]

    @property
    def ends(self) -> Tensor | None:
        """`last` where rows after it may be many, and are left out; None elsewhere."""
        return self.last if self.at.rows > PASS_ROWS else None

    def multiply(self, matrix: Matrix, x: Tensor, out: Tensor, activation: Activation | None = None) -> None:
        """Launch the product of the rows `x` with a matrix of the current half, or of none before the layers."""
        skip = None if self.layer < 0 else self.skip
        multiply(x, *self.model.weights.products[matrix], out, self.at.rows, skip, activation, self.ends)

    @property
    def skip(self) -> Tensor | None:
        """Flag int32 [1] of the current half; non-zero skips its launches."""
        return None if self.skips is None else self.skips.of(self.layer, self.half)

    def begin(self, layer: int) -> None:
        """Begin a layer; the residual stream before it is recorded once it is whole."""
        pictures, stream = self.model.buffers.pictures, self.model.buffers.residual[: self.at.rows]
        if pictures is not None and 0 < layer <= self.deep:
            self.flush()
            stream.add_(pictures[layer, : self.at.rows])
        self.layer, self._recorded = layer, layer

    def add(self, parts: Tensor | MixtureOutput, post: Norm | None, factor: float) -> None:
        """Add an update of the current half to the residual stream."""
        self.flush()
        self._update = StreamUpdate(parts, post, factor, self.skip, self.half)

    def scale(self, scalar: Tensor) -> None:
        """Multiply the residual stream at the end of a layer, where a half of it was not skipped."""
        assert self._update is not None
        half: Half = "mixer" if self._update.half == "feed" else "end"
        earlier = None if self.skips is None else self.skips.of(self.layer, half)
        self._update = self._update._replace(scalar=scalar, earlier=earlier)

    def normalise(self, norm: Norm | None, out: Tensor) -> None:
        """Write a norm of the residual stream to compute dtype [PROMPT_ROWS, hidden]; None copies it."""
        self._norms.append((norm, out))

    def flush(self, following: Weight | None = None) -> None:
        """Launch the waiting update and norms; `following` is the weight of the next product, to be prefetched."""
        if self._update is None and not self._norms:
            return
        model, update, b = self.model, self._update, self.model.buffers
        (norm, out), *others = self._norms or [(None, b.x)]
        weight, eps = (None, 0.0) if norm is None else (model.norms[norm], norm.eps)
        change, rows, first = ResidualUpdate(b.residual), self.at.rows, OtherNorm(weight, eps, out)
        if update is not None:
            post = None if update.post is None else NormOf(model.norms[update.post], update.post.eps)
            factor = None if update.factor == 1 else update.factor
            change = ResidualUpdate(b.residual, post, factor, update.skip, update.scalar, update.earlier)
        prefetch = None if following is None else ahead.of_weight(following, 1)
        parts = None if update is None else update.parts
        centred = norm is not None and norm.centred
        if isinstance(parts, MixtureOutput) and centred:
            add_mixture(change, parts, OtherNorm(None, 0.0, b.x), rows)
            add_rms_norm(ResidualUpdate(b.residual), None, first, rows, ahead=prefetch, centred=True)
        elif isinstance(parts, MixtureOutput):
            add_mixture(change, parts, first, rows, prefetch)
        else:
            more = [OtherNorm(model.norms[one], one.eps, into) for one, into in others if one is not None]
            add_rms_norm(change, parts, first, rows, more, prefetch, centred)
        self._update, self._norms = None, []
        for of in self.texts if self._recorded >= 0 else ():
            if of.memory.states is not None:
                of.memory.states.put(self._recorded, b.residual[of.first :], of.at.start, of.at.rows)
        self._recorded = -1
