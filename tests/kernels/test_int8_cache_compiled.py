"""What the compiler makes of the kernels of an int8 cache: they launch without spills, and trees compute as chains."""

from tests.kernels import compiled
from tests.kernels.test_attention_compiled import as_computed

CASES = "tests.kernels.cases_int8_cache"


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """Registers, shared memory, instructions a number."""
    ceilings = {
        "chain, 80 a head": (192, 38_912, 12.4),
        "tree, 80 a head": (224, 38_912, 13.4),
        "chain, 128 a head": (192, 38_912, 7.5),
        "tree, 128 a head": (232, 38_912, 8.1),
        "chain, 256 a head": (176, 41_984, 7.4),
        "tree, 256 a head": (232, 41_984, 8.5),
        "chain, 512 a head": (232, 49_664, 9.8),
        "tree, 512 a head": (255, 49_664, 10.9),
        "chain, 128 a head, window": (176, 38_912, 7.4),
        "tree, 128 a head, window": (232, 38_912, 8.4),
        "rope, 80 a head": (56, 0, 0.0),
        "rope, 128 a head": (56, 0, 0.0),
        "rope, 256 a head": (88, 0, 0.0),
        "rope, 512 a head": (128, 0, 0.0),
        "rope, 128 a head, a ring": (56, 0, 0.0),
    }
    found = compiled.reports(CASES, architectures)
    compiled.check_names(found, ceilings, architectures)
    for report in found:
        registers, shared, instructions = ceilings[report.name]
        compiled.check_limits(report, registers, shared)
        assert report.instructions_a_weight <= instructions, report
        assert report.tensor_cores == ("" if report.name.startswith("rope") else compiled.BFLOAT16_MMA), report


@compiled.NEWEST
def test_trees_and_windows_are_computed_as_chains_are(architectures: tuple[int, ...]) -> None:
    found = {(report.name, report.architecture): report for report in compiled.reports(CASES, architectures)}
    for architecture in architectures:
        for dim in (80, 128, 256, 512) if len(architectures) > 1 else (128, 256):
            chain, tree = (found[f"{kind}, {dim} a head", architecture] for kind in ("chain", "tree"))
            assert chain.operations, "nothing rounds: nothing was compared"
            assert as_computed(chain) == as_computed(tree)
        windowed = [found[f"{kind}, 128 a head, window", architecture] for kind in ("chain", "tree")]
        assert all(as_computed(one) == as_computed(found["chain, 128 a head", architecture]) for one in windowed)
