"""The engine: loads a pair of models and decodes speculatively. Never imports the app."""
