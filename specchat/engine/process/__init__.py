"""The engine process, and the side of it that the app holds."""
