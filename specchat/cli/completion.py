"""`specchat completion`: the script that completes options and names in a shell, and the names it offers."""

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

from specchat.cli.output import Output

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SPECCHAT_COMPLETE"
"""The environment variable by which click tells a call for completion."""


@add_completion_class
class Bash(BashComplete):
    """bash takes `--option=value` for three words."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in (*args, incomplete):
            if words and words[-1].startswith("--") and (word == "=" or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        return words[:-1], words[-1]


@add_completion_class
class Zsh(ZshComplete):
    """Like click's, but completes the value of `--option=value` rather than the whole word."""

    source_template = ZshComplete.source_template.replace(
        "    for type key", "    compset -P 1 '--*='\n\n    for type key", 1
    ).replace(" -U", "")


@add_completion_class
class Fish(FishComplete):
    """Like click's, but completes that as well, and a description does not end at a comma."""

    source_template = (
        FishComplete.source_template.replace('split "," ', 'split -m 1 "," ')
        .replace("    for ", "    set -l option (string match -r -- '^--[^=]+=' (commandline -t));\n\n    for ", 1)
        .replace("__fish_complete_directories $", "printf '%%s\\n' \"$option\"(__fish_complete_directories $")
        .replace("__fish_complete_path $", "printf '%%s\\n' \"$option\"(__fish_complete_path $")
        .replace("$metadata[2];\n        else", "$metadata[2]);\n        else")
        .replace("echo $metadata[2]", 'echo "$option$metadata[2]"')
    )


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, pairs, strategies and themes in a shell.

    \b
    bash:  eval "$(specchat completion bash)"      in ~/.bashrc
    zsh:   eval "$(specchat completion zsh)"       in ~/.zshrc
    fish:  specchat completion fish > ~/.config/fish/completions/specchat.fish
    """
    completer = get_completion_class(shell)
    assert completer is not None
    Output().write(completer(ctx.find_root().command, {}, "specchat", VARIABLE).source())


def complete_pairs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Ids and aliases of pairs that begin like `incomplete`; none where the user's files cannot be read."""
    del param
    from specchat.clean import one_line
    from specchat.config.catalog import read_catalog
    from specchat.config.errors import ConfigError
    from specchat.config.paths import user_paths
    from specchat.config.used_pairs import UsedPairs

    try:
        pairs = (*read_catalog(user_paths(), ctx.params.get("models")).pairs, *UsedPairs(user_paths().used_pairs).all())
    except ConfigError:
        return []
    return [
        CompletionItem(name, help=one_line(pair.name, 60))
        for pair in pairs
        for name in (pair.id, *pair.aliases)
        if name.startswith(incomplete)
    ]


def complete_themes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of theme files' themes that begin like `incomplete`."""
    del ctx, param
    from specchat.config.errors import ConfigError
    from specchat.config.paths import shipped, user_paths
    from specchat.config.themes import load_themes

    try:
        themes, _ = load_themes([shipped("themes"), user_paths().themes])
    except ConfigError:
        return []
    return [theme.name for theme in themes if theme.name.startswith(incomplete)]


def complete_chats(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Keys of chats that begin like `incomplete`, with their titles; none where they cannot be read."""
    del ctx, param
    last = [CompletionItem("last", help="the latest chat")] if "last".startswith(incomplete) else []
    keys = _keys(incomplete, deleted=False)
    return [] if keys is None else [*keys, *last]


def complete_deleted(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The same of deleted chats."""
    del ctx, param
    return _keys(incomplete, deleted=True) or []


def _keys(incomplete: str, *, deleted: bool) -> list[CompletionItem[str]] | None:
    """None where they cannot be read."""
    import sqlite3
    from contextlib import closing

    from specchat.chat import sql
    from specchat.clean import one_line
    from specchat.config.errors import ConfigError
    from specchat.config.paths import user_paths

    try:
        with closing(sqlite3.connect(f"{user_paths().chats.as_uri()}?mode=ro", uri=True)) as database:
            entries = (sql.deleted if deleted else sql.chats)(database)
    except (sqlite3.Error, ConfigError):
        return None
    return [CompletionItem(one.key, help=one_line(one.title, 60)) for one in entries if one.key.startswith(incomplete)]
