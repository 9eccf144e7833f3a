"""What users choose from, by published chat template."""

from collections.abc import Mapping

SWITCH, EFFORT = ("enable_thinking", (True, False)), ("reasoning_effort", ("low", "medium", "high"))
OLDER = ("thinking", (True, False))
OFFERED: Mapping[str, tuple[tuple[str, tuple[str | bool, ...]], ...]] = {
    **dict.fromkeys(
        (
            *("Apertus-8B-Instruct", "Bielik-11B-v3.0-Instruct", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"),
            *("GLM-4.6", "GLM-4.7-Flash", "HuggingFaceTB-SmolLM3-3B", "MiroThinker", "Reka-Edge", "Qwen3.5-4B"),
            *("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen-QwQ-32B", "Qwen-Qwen3-0.6B", "llama-cpp-rwkv-world"),
            *("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"),
        ),
        (SWITCH,),
    ),
    **dict.fromkeys(("deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2"), (SWITCH, OLDER)),
    "ibm-granite-granite-3.3-2B-Instruct": (OLDER,),
    "openai-gpt-oss-120b": (EFFORT,),
    # Any other effort is the most, as is none given.
    "GLM-5.2": (SWITCH, ("reasoning_effort", ("high",))),
    "deepseek-ai-DeepSeek-V4": (SWITCH, OLDER, ("reasoning_effort", ("high", "max"))),
    "Cohere2MoE": (("reasoning_effort", ("none",)),),
}
"""What users choose from; of the other templates nothing."""
