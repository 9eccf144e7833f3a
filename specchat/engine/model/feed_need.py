"""Memory of the values between the products of MLPs and mixtures on a GPU, as in `device.feeds`; without torch."""

from specchat.engine import gpu_shapes as shapes
from specchat.engine.gpu_shapes import PASS_ROWS
from specchat.engine.recipe import Experts, Gated, Matrix, Recipe


def feed_workspace(recipe: Recipe, bits: dict[Matrix, int], joined: dict[Matrix, Matrix], processors: int) -> int:
    """Bytes of the buffers that layers share; `bits` are those a value of each matrix, `joined` as in `Model`."""

    routers = {one.router for one in recipe.mixtures if one.router in joined}

    def more(feed: Experts) -> int:
        """One if the shared MLP is an expert more, of every row."""
        return feed.each.down in joined

    def partials(matrix: Matrix, alike: int = 1) -> int:
        outputs = shapes.joined_scores(sum(matrix.outputs)) if matrix in routers else sum(matrix.outputs)
        return outputs * shapes.tiling(outputs, matrix.inputs, bits[matrix], processors, alike).splits

    def gates(matrix: Matrix, alike: int = 1) -> int:
        within = shapes.activates(sum(matrix.outputs), matrix.inputs, bits[matrix], processors, alike)
        return 0 if within else partials(matrix, alike)

    def of_all(feed: Gated | Experts) -> tuple[int, ...]:
        """Bytes a row of an MLP that all rows go through, if there is one."""
        one = (None if more(feed) else feed.shared) if isinstance(feed, Experts) else feed
        return (4 * gates(one.gate_up), 2 * one.width, 4 * partials(one.down)) if one else (0,) * 3

    def of_some(feed: Gated | Experts) -> tuple[int, ...]:
        """Bytes a row of a mixture, if there is one."""
        if not isinstance(feed, Experts):
            return (0,) * 6
        top, each = feed.top + more(feed), feed.each
        gate = None if more(feed) else feed.shared_gate
        return (
            4 * partials(feed.router),
            4 * recipe.hidden if feed.apart else 0,
            4 * top * gates(each.gate_up, top),
            2 * top * each.width,
            4 * top * partials(each.down, top),
            4 * partials(gate) if gate else 0,
        )

    feeds = [layer.feed for layer in recipe.layers]
    shared: int = sum(max(alike) for of in (of_all, of_some) for alike in zip(*map(of, feeds), strict=True))
    forms = {(feed.count + more(feed), feed.top + more(feed)) for feed in feeds if isinstance(feed, Experts)}
    pairs = sum(12 * PASS_ROWS * top + 4 + 12 * shapes.most_tiles(count, top) for count, top in forms)
    return PASS_ROWS * shared + pairs
