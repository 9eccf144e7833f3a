"""What the compiler makes of attention: registers, shared memory, and the same arithmetic for chains and trees."""

from tests.kernels import compiled

CASES = "tests.kernels.cases_attention"
PLANTED = "tests.kernels.cases_attention:PLANTED"


# An address of the first is computed at two places: to the count of cycles it is the same for all threads.
MANY_ROWS = {
    128: (152, 38_912, 4.0, 3008, 9),
    256: (200, 41_984, 4.8, 872, 9),
    512: (248, 49_664, 6.9, 1232, 9),
}


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """Registers, shared memory, instructions a number; of a pass of the loop: cycles of shared memory, barriers."""
    ceilings = {
        "chain, 128 a head": (128, 38_912, 2.9, 768, 9),
        "tree, 128 a head": (160, 38_912, 3.6, 928, 10),
        "chain, 80 a head": (128, 38_912, 4.8, 768, 9),
        "chain, 256 a head": (160, 41_984, 2.8, 864, 9),
        "tree, 256 a head": (216, 41_984, 3.6, 1024, 10),
        "chain, 512 a head": (176, 49_664, 3.6, 1280, 9),
        "tree, 512 a head": (192, 49_664, 4.8, 1440, 10),
        "combine a chain": (104, 0, 0.0, 0, 0),
        "combine a tree": (104, 0, 0.0, 0, 0),
        "combine a chain, 256 a head": (120, 0, 0.0, 0, 0),
        "combine a tree, 256 a head": (120, 0, 0.0, 0, 0),
        "combine a chain, 512 a head": (128, 0, 0.0, 0, 0),
        "combine a tree, 512 a head": (128, 0, 0.0, 0, 0),
    }
    # A window takes no more, but for a tree's registers on sm_80.
    ceilings |= {f"{name}, window": ceilings[name] for name in ceilings if "80 a head" not in name}
    ceilings["chain, 256 a head, capped"] = (160, 41_984, 3.1, 864, 9)
    ceilings["tree, 256 a head, capped"] = (216, 41_984, 4.0, 1024, 10)
    # Rings take instructions.
    ceilings["tree, 128 a head, window"] = (200, 38_912, 3.7, 928, 10)
    ceilings["chain, 256 a head, window"] = (160, 41_984, 2.9, 864, 9)
    ceilings["tree, 256 a head, window"] = (216, 41_984, 4.0, 1024, 10)
    ceilings["chain, 512 a head, window"] = (176, 49_664, 3.8, 1280, 9)
    ceilings["tree, 512 a head, window"] = (192, 49_664, 5.0, 1440, 10)
    ceilings |= {f"combine a {kind}, 256 a head, sinks and gates": (120, 0, 0.0, 0, 0) for kind in ("chain", "tree")}
    # Of many rows each block may end a split, and the sums before it take registers.
    ceilings |= {f"many rows, {dim} a head": of for dim, of in MANY_ROWS.items()}
    ceilings |= {f"many rows, {dim} a head, window": of for dim, of in MANY_ROWS.items()}
    found = compiled.reports(CASES, architectures)
    compiled.check_names(found, ceilings, architectures)
    for report in found:
        registers, shared, *of_the_loop = ceilings[report.name]
        compiled.check_limits(report, registers, shared)
        compiled.check_loop(report, *of_the_loop)
        assert report.tensor_cores == ("" if report.name.startswith("combine") else compiled.BFLOAT16_MMA), report


PAIRS = [
    (chain, other)
    for chain, tree in (
        ("chain, 128 a head", "tree, 128 a head"),
        ("chain, 256 a head", "tree, 256 a head"),
        ("combine a chain", "combine a tree"),
        ("combine a chain, 256 a head", "combine a tree, 256 a head"),
        ("chain, 512 a head", "tree, 512 a head"),
        ("combine a chain, 512 a head", "combine a tree, 512 a head"),
    )
    for other in (tree, f"{chain}, window", f"{tree}, window")
]
FURTHER = "256 a head, sinks and gates"
PAIRS.append((f"combine a chain, {FURTHER}", f"combine a tree, {FURTHER}"))
"""Chains, and what has to round as they do."""


@compiled.NEWEST
def test_trees_and_windows_are_computed_as_chains_are(architectures: tuple[int, ...]) -> None:
    """The same operands of `mma` in the same order, and as many operations that round: none is fused in one alone."""
    found = {(r.name, r.architecture): r for r in compiled.reports(CASES, architectures)}
    for architecture in architectures:
        pairs = [pair for pair in PAIRS if all((name, architecture) in found for name in pair)]
        assert len(pairs) == len(PAIRS) if len(architectures) > 1 else len(pairs) > 6
        for pair in pairs:
            one, other = (found[name, architecture] for name in pair)
            assert one.operations, "nothing rounds: nothing was compared"
            assert as_computed(one) == as_computed(other)


@compiled.NEWEST
def test_many_rows_are_computed_as_few_are(architectures: tuple[int, ...]) -> None:
    """The same products in the same order, and what the combination does of eight splits at a time, of one."""
    found = {(r.name, r.architecture): r for r in compiled.reports(CASES, architectures)}
    for architecture in architectures:
        for dim in (128, 256, 512):
            names = (
                f"many rows, {dim} a head",
                f"chain, {dim} a head",
                "combine a chain" + f", {dim} a head" * (dim > 128),
            )
            if (names[0], architecture) not in found:
                continue
            many, chain, combination = (found[name, architecture] for name in names)
            assert as_computed(many)[1:] == as_computed(chain)[1:]
            # A thread of the tile has two rows, and for each as many values as one of the combination's warp has twice.
            for kind in ("FFMA", "FMUL"):
                added = many.operations[kind] - chain.operations[kind]
                assert added == 2 + dim // 8
                assert combination.operations[kind] == 8 * (1 + dim // 32)


def test_programs_that_fuse_otherwise_are_told_apart() -> None:
    ours, planted = ({r.name: r for r in compiled.reports(cases, (120,))} for cases in (CASES, PLANTED))
    tree = "tree, 128 a head"
    assert as_computed(planted[f"{tree}: not fused"]) != as_computed(ours[tree])


def as_computed(report: compiled.Report) -> tuple[object, ...]:
    """What has to be alike of two programs that round alike."""
    return report.operations, report.tensor_cores, report.operands, report.chains
