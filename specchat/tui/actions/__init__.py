"""Everything the user can do, by feature; keys, palette, slash commands, hints and docs/keys.md come from `ACTIONS`."""
