"""The parts of the first hour on a GPU, in order: first correctness, then times."""

from measure.gpu.record import Part

PYTHON = "{python}"
PYTEST = (PYTHON, "-m", "pytest", "-n0", "-x", "--timeout", "1800", "-p", "no:cacheprovider")
SPECCHAT = (PYTHON, "-m", "specchat")
COLD = {"TRITON_CACHE_DIR": "{root}/triton-cold"}


def _ours(name: str, about: str, module: str, *arguments: str) -> Part:
    return Part(name, about, (PYTHON, "-m", f"measure.gpu.{module}", *arguments, "--out", "{out}"))


def _tests(name: str, about: str, *arguments: str) -> Part:
    return Part(name, about, (*PYTEST, *arguments))


def _sanitized(tool: str) -> Part:
    # racecheck does not end within minutes for the larger one.
    check, of = ("demo-step", "the demo") if tool == "racecheck" else ("eager-step", "two layers")
    step = (PYTHON, "-m", "measure.gpu.steps", check, "--out", "{out}")
    return Part(
        f"sanitizer-{tool}",
        f"compute-sanitizer {tool} on eager steps of {of}",
        ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *step),
        needs="compute-sanitizer",
        environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    )


def _shapes(name: str, about: str, fresh: str = "", *arguments: str) -> Part:
    command = (*SPECCHAT, "bench", "--shapes", "qwen3-8b", *arguments, "--json", "{out}/shapes.json")
    return Part(name, about, command, environment=COLD, fresh=fresh)


PARTS = (
    Part("checks", "the checks that users run", (*SPECCHAT, "doctor", "--gpu", "--report", "{out}/specchat-gpu.zip")),
    Part("doctor", "what works on this machine", (*SPECCHAT, "doctor", "--engine")),
    _shapes("shapes-cold", "two layers of Qwen3-8B, nothing compiled", "triton-cold", "--layers", "2"),
    _shapes("shapes-warm", "the same again, all compiled", "", "--layers", "2"),
    *(
        _tests(f"tests-{name}", f"{name} on the GPU, at Qwen3's shapes", "-m", "gpu", f"tests/kernels/test_{name}.py")
        for name in ("products", "experts", "attention", "verify")
    ),
    _tests("tests-kernels", "other tests of kernels, not interpreted", "-m", "not slow and not gpu", "tests/kernels"),
    *(_sanitized(tool) for tool in ("memcheck", "racecheck", "initcheck", "synccheck")),
    _tests("tests-device", "tests of the device's step, not interpreted", "-m", "not slow and not gpu", "tests/device"),
    *(
        _tests(f"tests-replies-{dtype}", f"every draft writes the plain text in {dtype}", "tests/device/test_gpu.py",
               "-k", f"any_draft and {which}")
        for dtype, which in (("bfloat16", "bfloat16"), ("float16", "not bfloat16"))
    ),
    _tests("tests-long", "replays and 10,000 tokens", "tests/device/test_gpu.py", "-k", "not any_draft"),
    _ours("caches", "a cache by 64 rows is one by single rows, by 16 and by 32", "steps", "caches"),
    _ours("strategies", "every strategy and length, captured, writes the plain text", "steps", "strategies"),
    _ours("ratio", "judged by ratio or block, captured graphs write what eager launches write", "steps", "ratio"),
    _ours("fuzz", "cancels, stops, changes and limits against plain replies", "sessions", "fuzz"),
    _ours("products", "products timed beside bitsandbytes and cuBLAS", "kernels", "products"),
    _ours("experts", "a layer's experts timed by rows, Qwen3-30B-A3B's", "experts", "experts"),
    _ours("recurrent", "a recurrent layer's kernels timed by rows, Qwen3.5-27B's", "recurrent", "recurrent"),
    _ours("prompts", "prompts read in passes of two widths, Qwen3-8B's", "prompts", "qwen3-8b"),
    _ours("prompts-experts", "the same, Qwen3-30B-A3B's", "prompts", "qwen3-30b-a3b"),
    _ours("heads", "drafts by trained heads timed beside plain steps, Qwen3-8B's", "heads", "heads"),
    _ours("ahead", "passes with weights asked for ahead beside passes without", "ahead", "ahead"),
    _ours("attention", "attention timed in splits of three lengths", "kernels", "attention"),
    _shapes("shapes", "steps of all of Qwen3-8B"),
    _ours("trace", "where the time of a step goes, kernel by kernel", "steps", "trace"),
    _ours("memory", "memory around captures, and over five loads", "sessions", "memory"),
    *(
        _ours(f"fault-{name}", about, "faults", name)
        for name, about in (
            ("illegal", "a kernel that fails ends the engine, and the next one works"),
            ("no-compiler", "without a C compiler the reason is a sentence"),
            ("full", "on a full GPU a pair goes to the CPU"),
            ("second", "two engines at once write the same"),
        )
    ),
    Part("check", "every strategy's text is the plain one", (*SPECCHAT, "check", "--full", "--limit", "24")),
    Part("bench", "all strategies, and transformers with bitsandbytes",
         (*SPECCHAT, "bench", "--against", "transformers", "--json", "{out}/bench.json")),
    *(
        Part(f"suite-{name}", f"all tests of {folders}",
             (PYTHON, "-m", "pytest", "-x", "-m", "not slow and not gpu", *folders.split()))
        for name, folders in (
            ("engine", "tests/engine tests/process tests/bench"),
            ("app", "tests/tui"),
            ("rest", "tests/chat tests/cli tests/config tests/doctor tests/training"),
        )
    ),
)  # fmt: skip
