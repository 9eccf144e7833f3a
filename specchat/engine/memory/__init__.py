"""What a model takes, and where its parts go, before anything is loaded."""
