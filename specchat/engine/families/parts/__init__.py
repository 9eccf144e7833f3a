"""Parts that several families share: layers, experts, mixers, and their keys of config.json."""
