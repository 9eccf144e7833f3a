"""Shapes on a GPU: what the kernels take, rows of a pass, and how products are cut; without Triton, for plans too.

A product's inputs are cut by its shape and the GPU's size, never by the number of rows. A program takes BN outputs and
one split of the inputs, and goes through it BK inputs at a time. Partial sums of the splits stay apart: the kernel that
reads them next adds them in index order.
"""

from dataclasses import dataclass, replace

OLDEST = (8, 0)
"""Compute capability of a GPU: bfloat16 tensor cores and asynchronous copies (Ampere)."""
WIDEST = 8192
"""Values of a hidden state: one program of the norm holds all of them."""
WIDEST_HEAD = 512
"""Values of an attention head."""
SHARING_HEADS = 16
"""Query heads that share a key-value head: they are the rows of one tensor-core tile."""
END_TOKENS = 16
"""End-of-text tokens that the end of a step looks for."""
VECTOR = 16
"""Values to a multiple of which a kernel's rows are aligned, so that a thread loads several at a time."""
MATRIX = 2**31 - 1
"""Values of a matrix: kernels count them in int32."""

PASS_ROWS = 64
"""Rows of the widest pass but a prompt's: nodes of a tree, and rows that a program of a product takes at most."""
PROMPT_ROWS = 512
"""Rows of the widest pass of a prompt: groups of PASS_ROWS, which read the same weights at about the same time."""
DENSE_ROWS = 256
"""Rows of the widest pass of a prompt for a model without experts, which more rows do not make faster."""
VERIFY_ROWS = 16
"""Rows that get logits: a pending token and a chain of up to 15."""
IN_COMPANY = 4
"""Replies that decode in one pass at most."""
CACHE_BLOCK = 64
"""The cache is made in whole blocks of so many positions."""
BACK = 512
"""Positions by which a text can be rolled back where layers hold those of a window alone."""
TILE_ROWS = 8
"""Rows of one tensor-core tile; wider passes multiply several such tiles by the same unpacked weights."""

SPLIT = 128
"""Cache entries of one partial sum of attention, the same in every step; a multiple of 64, the nodes of a tree.

Shorter splits occupy more of a GPU while the text is short, and leave more sums to combine when it is long:
`python -m measure.gpu --part attention` times 64, 128 and 256.
"""
GROWS = 64
"""Splits after which a split has twice as many entries, from the second such number on: a split is never more than one
part in so many of the text before it, and never longer than SPLIT in a layer with a window."""

PROCESSORS = 128
"""Multiprocessors of a GPU that is not known: those of an RTX 4090."""
TOGETHER = 2
"""Programs that a multiprocessor needs at a time to hide that each waits for memory."""
RESIDENT = {2: 4, 3: 4, 4: 3, 5: 3, 6: 2, 8: 4, 16: 4, 32: 4}
"""Programs, by bits a value, for which a multiprocessor has room at a time where it has least: 100 KiB of shared memory
on sm_86, 89 and 120."""
MOST_SPLITS = 8
OVERHEAD = {2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 8: 2, 16: 2, 32: 2}
"""Cost of a split beside its BK blocks, in blocks by bits a value: its start, and its sums, written and read."""

WORTH = 0.95
"""More splits must bring the slowest multiprocessor's time below this part: their sums are read once more."""

ACTIVATED = 1.2
"""Most that a product with an activation takes of the best cut's time on multiprocessors, which memory may hide."""


@dataclass(frozen=True)
class Tiling:
    """Outputs and inputs of a block, splits of the inputs, and warps of a program."""

    outputs: int
    inputs: int
    splits: int
    warps: int


def held(window: int, context: int, capacity: int, mutual: int) -> int:
    """KV entries that a layer holds of a text of up to `context` tokens, in a cache of `capacity` positions.

    Those of a window make a ring: position p is entry p modulo their number. Passes write up to PASS_ROWS entries after
    the text, the one of a step begun ahead as many after that. All of a picture, of `mutual` tokens at most, may be
    there before its first row attends.
    """
    if not 0 < window < context:
        return capacity
    return min(capacity, -(-(window + max(BACK, mutual) + 2 * PASS_ROWS) // CACHE_BLOCK) * CACHE_BLOCK)


def attention_splits(positions: int, window: int = 0, rows: int = VERIFY_ROWS, split: int = SPLIT) -> int:
    """Partial sums of attention for each row and head of a pass over so many `positions` of the cache.

    Of a window those that so many rows see together.
    """
    if window:
        return min(-(-positions // split), -(-(window + rows) // split) + 1)
    last = (positions - 1) // split
    doubled = max(0, (last // GROWS).bit_length() - 1)
    return doubled * GROWS + (last >> doubled) + 1


def stages(tiles: int, chained: bool = False) -> int:
    """Pipeline stages of a program that multiplies by `tiles` tiles of rows: how far ahead it loads, not what it adds.

    With four tiles three stages take the shared memory of a whole multiprocessor of sm_86 and 89; with two a second
    program fits beside the first. Where loads are `chained`, the address of one being the value of another, each link
    takes its share of the stages.
    """
    ahead = 2 if tiles < 4 else 1
    return 1 + ahead * (2 if chained else 1)


def tiling(outputs: int, inputs: int, bits: int, processors: int = PROCESSORS, alike: int = 1) -> Tiling:
    """The cut for a weight of this shape with `bits` a value, on a GPU with so many multiprocessors.

    `alike` is how many weights of this shape are multiplied at a time: the experts of one row.
    Of 1, 2, 4 and MOST_SPLITS splits it takes those with which the multiprocessor that has the most programs,
    ceil(programs / processors), is done first, and fewer where that gains next to nothing. RESIDENT programs run at a
    time, what is left comes after them; fewer than TOGETHER take as long as TOGETHER.
    """
    bn, bk, blocks = _block(outputs, inputs, bits)
    splits = 1
    for more in (2, 4, MOST_SPLITS):
        none_empty = (more - 1) * -(-blocks // more) < blocks
        if none_empty and _slowest(outputs, inputs, bits, processors, more, alike) < WORTH * _slowest(
            outputs, inputs, bits, processors, splits, alike
        ):
            splits = more
    return Tiling(bn, bk, splits, warps=4)


def part_of(cut: Tiling, outputs: int, inputs: int, bits: int) -> Tiling:
    """The cut for a part of a matrix with the splits of `cut`, the whole one's."""
    bn, bk, _ = _block(outputs, inputs, bits)
    return Tiling(bn, bk, cut.splits, warps=4)


def widened(cut: Tiling, outputs: int, bits: int, rows: int, processors: int = PROCESSORS) -> Tiling:
    """The cut for so many rows: programs of twice the outputs and warps for 2 to TILE_ROWS rows of 2 to 4 bits.

    All programs read all rows, so half as many read half as much. A warp does what it does in a program of `cut`:
    no bit depends on this. The cut stays where the busiest multiprocessor would have more outputs, or the last program
    fewer than the others.
    """
    if bits > 4 or not 1 < rows <= TILE_ROWS or outputs % (2 * cut.outputs):
        return cut
    programs = outputs // cut.outputs * cut.splits
    if 2 * -(-programs // 2 // processors) > -(-programs // processors):
        return cut
    return replace(cut, outputs=2 * cut.outputs, warps=2 * cut.warps)


def activates(outputs: int, inputs: int, bits: int, processors: int = PROCESSORS, alike: int = 1) -> bool:
    """Return true if the product of gates and values applies the activation, which takes whole sums: one split.

    This saves a launch and the sums' way through memory, at ACTIVATED times the best cut's time at most. `alike` as in
    `tiling`.
    """
    best = tiling(outputs, inputs, bits, processors, alike).splits
    whole, cut = (_slowest(outputs, inputs, bits, processors, splits, alike) for splits in (1, best))
    return outputs >= 64 and whole <= ACTIVATED * cut


def _block(outputs: int, inputs: int, bits: int) -> tuple[int, int, int]:
    """Outputs and inputs of a block, and blocks along the inputs."""
    # Weights of few bits are loaded as words only without a mask: take a block that divides the inputs.
    whole = next((size for size in (256, 128, 64) if inputs % size == 0), 128)
    widest = {8: 128, 16: 64, 32: 32}.get(bits, whole)
    bk = min(widest, max(32, 1 << (inputs - 1).bit_length()))
    return 64 if outputs >= 64 else 32, bk, -(-inputs // bk)


def expert_tiles(rows: int, count: int, top: int) -> tuple[int, int]:
    """Rows of a tile of one expert's, and the most tiles of a pass over `rows` rows that have `top` of `count` experts.

    A tile has room for the rows of an average expert, so that most are read once, and in a prompt's pass for those of
    nearly all, where reading is what costs. No bit depends on it.
    """
    pairs, tile = rows * top, TILE_ROWS
    while tile < min(rows, PASS_ROWS, (1 + (rows > PASS_ROWS)) * -(-pairs // count)):
        tile *= 2
    used = min(pairs, count)
    return tile, used + (pairs - used) // tile


def joined_scores(count: int) -> int:
    """Outputs of a router of `count` experts that the gate of a shared one follows, in whole vectors of scores."""
    return -(-(count + 1) // VECTOR) * VECTOR


def most_tiles(count: int, top: int) -> int:
    """Tiles of any pass, at most: of those of `expert_tiles` full ones are no more than experts, or of PASS_ROWS."""
    return min(PROMPT_ROWS * top, 2 * count + PROMPT_ROWS * top // PASS_ROWS)


def _slowest(outputs: int, inputs: int, bits: int, processors: int, splits: int, alike: int) -> int:
    """Blocks that the busiest multiprocessor takes the time of."""
    bn, _, blocks = _block(outputs, inputs, bits)
    waves, rest = divmod(-(-(-(-outputs // bn) * splits * alike) // processors), RESIDENT[bits])
    programs = waves * RESIDENT[bits] + (max(TOGETHER, rest) if rest else 0)
    return programs * (-(-blocks // splits) + OVERHEAD[bits])


LAUNCH_US = 4.1
"""Microseconds of a launch that is bound by latency: as it was on an H200."""
AHEAD_PART = 128 * 1024
"""Bytes of a weight that one program asks for ahead of its product."""
LEAST_AHEAD = 16
"""Parts below which asking is not worth its programs."""
MOST_RATE = 14e3
"""Bytes a microsecond for each multiprocessor, beyond which unpacking 4-bit weights takes longer than reading them."""
OF_CACHE = 4
"""A weight asked for ahead fills at most this part of the second cache, so that it is still there for the product."""


def ahead_parts(held: int, launches: int, rate: float, cache: int) -> int:
    """Parts of a weight of `held` bytes to ask for in the time of so many small launches; its product reads the rest.

    A product takes a launch's time at least, so that nothing is won by what memory gives within it. `rate` are the
    bytes a microsecond of the memory, `cache` those of the second cache.
    """
    of_launch = LAUNCH_US * rate
    parts = int(min(held, launches * of_launch, cache / OF_CACHE)) // AHEAD_PART
    return parts if min(parts, (held - of_launch) // AHEAD_PART) >= LEAST_AHEAD else 0


STATE_NUMBERS = 2048
"""Numbers of a recurrent state that one program steps: some columns of one head, in the registers of a warp."""
STATE_BACK = 48
"""Tokens before a pass that a text may be rolled back by: a draft, and a trial of SWIFT before it."""
STATE_SLACK = 16
"""Tokens beyond them before the oldest are folded into the states that the log begins with."""
STATE_LAG = 16
"""Tokens before a pass whose changes it makes again at most, where nothing was rolled back."""
STATE_SLOTS = 120
"""Entries of a log of states: those of STATE_BACK tokens, of a pass, and those that a convolution reads before them."""


def state_columns(key_dim: int, value_dim: int) -> int:
    """Columns of a recurrent state [key_dim, value_dim] that one program steps."""
    return max(1, min(value_dim, STATE_NUMBERS // key_dim))
