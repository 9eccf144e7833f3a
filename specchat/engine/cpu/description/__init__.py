"""Records of models and passes, and the buffers of a pass."""
