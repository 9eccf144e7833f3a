"""The innermost loop of a compiled kernel in PTX: its traffic with memory, barriers and chains of products.

Addresses are sums, shifts and masks of the thread's number, computed here for every thread.
What is not known (loaded values, the stage of a pipeline) is the same for a whole warp and moves no bank: it counts
as 0. Every argument of the kernel is ARGUMENT, so that rows of a matrix are far from each other.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARP = 32
BANKS = 32
LINE = 128
"""Bytes of a cache line."""
ARGUMENT = 1 << 16
OPERATIONS: dict[str, Callable[..., Any]] = {
    "mov": lambda low, high=0: low | high << 32,
    "low": lambda a: a & 0xFFFFFFFF,
    "high": lambda a: a >> 32,
    "cvt": lambda a: a,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "bfe": lambda a, first, count: (a >> first) & ((1 << count) - 1),
}
"""Of integers; what else there is makes no address."""


@dataclass
class Loop:
    """The longest loop of a kernel of so many threads."""

    lines: list[str]
    threads: int
    definitions: dict[str, set[tuple[str, ...]]]
    known: dict[str, Any] = field(default_factory=dict)

    def wavefronts(self) -> int:
        """Cycles of the shared-memory pipe in one pass of all warps, conflicts of banks counted."""
        return sum(self._conflicts(line) for line in self.lines if _is_shared(line))

    def barriers(self) -> int:
        """Barriers of the whole block in one pass."""
        return sum("bar.sync" in line or "barrier.sync" in line for line in self.lines)

    def lines_ahead(self) -> int:
        """Cache lines that copies to shared memory ask for in one pass, each instruction of a warp by itself."""
        copies = (line for line in self.lines if line.startswith("cp.async.c") and "[" in line)
        warps = (np.split(self._address(copy, 1) // LINE, self.threads // WARP) for copy in copies)
        return sum(len(set(lines.tolist())) for of_copy in warps for lines in of_copy)

    def loads(self) -> int:
        """Loads from memory into registers, which are waited for in the pass that makes them."""
        return sum(line.startswith("ld.global") for line in self.lines)

    def chains(self) -> list[str]:
        """For each accumulator of a warp, where its products' operands lie in their tiles, in the order of adding.

        Equal chains are told once: tiles of rows that are multiplied alike have the same.
        """
        found, places = dict[str, list[str]](), dict[str, set[int]]()
        for line in self.lines:
            if line.startswith(("ldmatrix", "ld.shared")):
                address, stride = self._address(line), 8 if line.startswith("ldmatrix") else 0
                for i, register in enumerate(re.findall(r"%\w+", line.partition("[")[0])):
                    places[register] = {(int(address[stride * i]) + (0 if stride else 4 * i)) % 1024}
            elif line.startswith("mma."):
                made, left, right, before = (re.findall(r"%\w+", group) for group in re.findall(r"\{(.*?)\}", line))
                operands = [[sorted(self._origin(register, places)) for register in x] for x in (left, right)]
                found[str(made)] = [*found.pop(str(before), []), "{} {}".format(*operands)]
        return sorted({" | ".join(chain) for chain in found.values()})

    def _origin(self, register: str, places: dict[str, set[int]]) -> set[int]:
        """Where in its tile of shared memory the number in a register was loaded from, whatever became of it since."""
        if register not in places:
            places[register] = set()
            operands = {o for made in self.definitions.get(register, ()) for o in made[1:] if o.startswith("%")}
            places[register] = set[int]().union(*(self._origin(operand, places) for operand in operands))
        return places[register]

    def _conflicts(self, line: str) -> int:
        address, width = self._address(line), _bytes_a_thread(line)
        if line.startswith("ldmatrix"):
            matrices = int(re.search(r"\.x(\d)", line)[1])  # type: ignore[index]
            groups = [address[w : w + 8 * matrices] for w in range(0, self.threads, WARP)]
            return sum(_cycles(rows, 16) for group in groups for rows in np.split(group, matrices))
        at_once = WARP if width <= 4 else WARP * 4 // width
        return sum(_cycles(lanes, width) for lanes in np.split(address, self.threads // at_once))

    def _address(self, line: str, operand: int = 0) -> np.ndarray:
        """The bytes [threads] at which each thread's access begins; of a copy, operand 1 is where it is read."""
        places = re.findall(r"\[\s*([%\w]+)\s*(?:\+\s*(-?\d+))?\s*\]", line)
        name, offset = places[operand]
        return np.broadcast_to(self._value(name) + int(offset or 0), (self.threads,))

    def _value(self, name: str) -> Any:
        if re.fullmatch(r"-?\d+", name):
            return int(name)
        if name == "%tid.x":
            return np.arange(self.threads)
        if name not in self.known:
            self.known[name] = 0
            self.known[name] = self._computed(name)
        return self.known[name]

    def _computed(self, name: str) -> Any:
        definitions = self.definitions.get(name, set())
        if len(definitions) != 1:
            return 0
        operation, *operands = next(iter(definitions))
        if operation == "ld" and "_param_" in operands[0]:
            return ARGUMENT
        compute = OPERATIONS.get(operation)
        return 0 if compute is None else compute(*(self._value(operand) for operand in operands))


def loop(ptx: str, threads: int) -> Loop:
    """The loop of `ptx` that has the most lines."""
    lines = [re.sub(r"^@!?%p\d+\s+", "", line.strip()) for line in _told_apart(ptx)]
    labels = {line.partition(":")[0]: i for i, line in enumerate(lines) if line.startswith("$L__BB")}
    jumps = [(labels[m[1]], i) for i, line in enumerate(lines) if (m := re.match(r"bra(?:\.uni)?\s+(\$\w+)", line))]
    begin, end = max(((a, b) for a, b in jumps if a < b), key=lambda x: x[1] - x[0], default=(0, 0))
    return Loop(lines[begin:end], threads, _definitions(lines))


def _told_apart(ptx: str) -> Iterator[str]:
    """The lines, registers of a block of assembly written as the kernel's own, of which each has a name of its own."""
    local, blocks = "", 0
    for line in ptx.splitlines():
        if line.strip() in ("{", "}"):
            local, blocks = "", blocks + 1
        elif m := re.match(r"\s*\.reg\s+\.\w+\s+([a-z]+)<\d+>;", line):
            local += f"|{m[1]}"
        elif local:
            line = re.sub(rf"(?<![.%\w])((?:{local[1:]})\d+)\b", rf"%\1_{blocks}", line)
        yield line


def _definitions(lines: list[str]) -> dict[str, set[tuple[str, ...]]]:
    """The operations, with their operands, that a register is the outcome of; `mov` of two halves gives each."""
    found = dict[str, set[tuple[str, ...]]]()
    for line in lines:
        if m := re.match(r"([a-z]\w*)[\w.:]*\s+(\{[^}]*\}|%\w+),\s*(.*?);", line):
            registers = m[2].strip("{} ").split(",")
            operations = ("low", "high") if m[1] == "mov" and len(registers) == 2 else (m[1],) * len(registers)
            for register, operation in zip(registers, operations, strict=True):
                found.setdefault(register.strip(), set()).add((operation, *re.findall(r"[%\w.-]+", m[3])))
    return found


def _is_shared(line: str) -> bool:
    return line.startswith(("ldmatrix", "ld.shared", "st.shared")) or (line.startswith("cp.async.c") and "[" in line)


def _bytes_a_thread(line: str) -> int:
    if line.startswith("cp.async"):
        return int(re.search(r"\], (0x[0-9a-f]+)", line)[1], 16)  # type: ignore[index]
    each = re.search(r"(?:\.v(\d))?\.[bs](\d+)", line)
    assert each is not None, line
    return int(each[1] or 1) * int(each[2]) // 8


def _cycles(addresses: np.ndarray, width: int) -> int:
    """How often the busiest bank is asked for another word by accesses of `width` bytes at a time."""
    words = {int(a) // 4 + i for a in addresses for i in range(max(1, width // 4))}
    return max(Counter(word % BANKS for word in words).values())
