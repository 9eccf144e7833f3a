"""Lines to paste, by which editors and agents use a served pair."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ClientRecipe:
    """Settings of a client.

    Attributes:
        title: the client's name.
        where: where the lines go, in words.
        lines: with `{root}` for the address, `{model}`, and `{context}` for its tokens.
    """

    title: str
    where: str
    lines: str

    def filled(self, root: str, model: str, context: int) -> str:
        """The lines for a pair."""
        known = {"{root}": root, "{model}": model, "{context}": str(context)}
        text = self.lines.strip()
        for name, value in known.items():
            text = text.replace(name, value)
        return text


SHELL = "in a shell"
RECIPES: Mapping[str, ClientRecipe] = {
    "claude-code": ClientRecipe(
        "Claude Code",
        SHELL,
        """
export ANTHROPIC_BASE_URL={root} ANTHROPIC_AUTH_TOKEN=specchat
export ANTHROPIC_MODEL={model} ANTHROPIC_DEFAULT_HAIKU_MODEL={model} CLAUDE_CODE_SUBAGENT_MODEL={model}
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
claude
""",
    ),
    "codex": ClientRecipe(
        "Codex",
        "in ~/.codex/config.toml",
        """
model = "{model}"
model_provider = "specchat"
model_context_window = {context}

[model_providers.specchat]
name = "specchat"
base_url = "{root}/v1"
wire_api = "responses"
""",
    ),
    "opencode": ClientRecipe(
        "opencode",
        "in opencode.json of the project",
        """
{
  "$schema": "https://opencode.ai/config.json",
  "model": "specchat/{model}",
  "provider": {
    "specchat": {
      "npm": "@ai-sdk/openai-compatible",
      "options": { "baseURL": "{root}/v1", "apiKey": "specchat" },
      "models": { "{model}": { "limit": { "context": {context}, "output": {context} } } }
    }
  }
}
""",
    ),
    "qwen-code": ClientRecipe(
        "Qwen Code",
        SHELL,
        """
export OPENAI_BASE_URL={root}/v1 OPENAI_API_KEY=specchat OPENAI_MODEL={model}
qwen --auth-type openai
""",
    ),
    "aider": ClientRecipe(
        "aider",
        SHELL,
        """
export OPENAI_API_BASE={root}/v1 OPENAI_API_KEY=specchat
aider --model openai/{model} --no-show-model-warnings
""",
    ),
    "continue": ClientRecipe(
        "Continue",
        "in ~/.continue/config.yaml",
        """
name: specchat
version: 1.0.0
schema: v1
models:
  - name: {model}
    provider: openai
    model: {model}
    apiBase: {root}/v1
    apiKey: specchat
    roles: [chat, edit, apply]
    defaultCompletionOptions:
      contextLength: {context}
""",
    ),
    "llama.vscode": ClientRecipe(
        "llama.vscode",
        "in the settings of VS Code; the model has to be able to fill in",
        """
{
  "llama-vscode.endpoint": "{root}",
  "llama-vscode.endpoint_chat": "{root}",
  "llama-vscode.endpoint_tools": "{root}",
  "llama-vscode.max_parallel_completions": 1
}
""",
    ),
    "llama.vim": ClientRecipe(
        "llama.vim",
        "in vimrc; the model has to be able to fill in",
        """
let g:llama_config = { 'endpoint_fim': '{root}/infill', 'endpoint_inst': '{root}/v1/chat/completions' }
""",
    ),
    "llm": ClientRecipe(
        "llm",
        "in extra-openai-models.yaml, in the folder of `llm logs path`",
        """
# Then: llm -m {model} "Hello"
- model_id: {model}
  model_name: {model}
  api_base: {root}/v1
""",
    ),
    "zed": ClientRecipe(
        "Zed",
        "in settings.json of Zed",
        """
{
  "language_models": { "ollama": { "api_url": "{root}" } },
  "agent": { "default_model": { "provider": "ollama", "model": "{model}" } }
}
""",
    ),
}
"""Clients by the names of `specchat serve --for`."""
