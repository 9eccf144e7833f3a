"""Counts how much of what people download specchat's own decoder runs, by the families it knows.

    python -m measure.downloads

The downloads are those of 30 days on the hub, snapshots of July to October 2026, of all files of a model: files in
other quantisations than bitsandbytes' run by transformers or llama.cpp.
"""

from specchat.engine import families

DOWNLOADS: dict[str, tuple[str, float]] = {
    "Qwen3-0.6B": ("qwen3", 15.4),
    "Qwen3-Coder-30B-A3B": ("qwen3_moe", 12.8),
    "Qwen2.5-7B": ("qwen2", 9.8),
    "Gemma 4 31B": ("gemma4_text", 9.6),
    "Gemma 4 26B-A4B": ("gemma4_text", 8.6),
    "Qwen3.8-27B": ("qwen3_5_text", 7.5),
    "Qwen3-8B": ("qwen3", 6.1),
    "Qwen3.6-35B-A3B": ("qwen3_5_moe_text", 6.0),
    "Llama-3.1-8B": ("llama", 5.9),
    "gpt-oss-20b": ("gpt_oss", 5.8),
    "Qwen3.6-27B": ("qwen3_5_text", 5.2),
    "Qwen3-4B": ("qwen3", 3.1),
    "Muse Glimmer 30B": ("muse_glimmer_text", 0.8),
}
"""The family of each model, and its downloads in millions."""


def share() -> float:
    """The part of the downloads whose architecture the native decoder runs on a processor."""
    known = families.known()
    run = sum(millions for family, millions in DOWNLOADS.values() if family in known)
    return run / sum(millions for _, millions in DOWNLOADS.values())


def main() -> None:
    """Print the table and the share."""
    for name, (family, millions) in DOWNLOADS.items():
        print(f"{name:22} {millions:5.1f}  {'native' if family in families.known() else f'not: {family}'}")
    print(f"{share():.0%} of these downloads")


if __name__ == "__main__":
    main()
