"""Memory and placement of models, planned before anything is loaded."""
