"""`specchat paths`: where specchat's files are."""

import click

from specchat.cli.output import Output, reports_errors


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reports_errors
def paths(as_json: bool) -> None:
    """Show where configuration, themes, logs and shipped files are."""
    from specchat.config.paths import demo_model, shipped, user_paths

    user = user_paths()
    places = {
        "config": user.config,
        "settings": user.settings_file,
        "models": user.models_file,
        "keys": user.keys_file,
        "personas": user.personas_file,
        "presets": user.presets_file,
        "prompts": user.prompts,
        "tools": user.tools_file,
        "themes": user.themes,
        "data": user.data,
        "cache": user.cache,
        "state": user.state,
        "chats": user.chats,
        "engine_log": user.engine_log,
        "sockets": user.runtime,
        "read_texts": user.read,
        "prompt_history": user.prompt_history,
        "shipped_models": shipped("models.toml"),
        "shipped_personas": shipped("personas.toml"),
        "shipped_presets": shipped("presets.toml"),
        "shipped_themes": shipped("themes"),
        "demo": demo_model("target").parent,
    }
    if as_json:
        Output().write_json({name: str(path) for name, path in places.items()})
    else:
        width = max(map(len, places))
        Output().write("".join(f"{name:<{width}}  {path}\n" for name, path in places.items()))
