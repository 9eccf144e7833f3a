"""GGUF files: exported from a checkpoint, and run by llama.cpp through llama-cpp-python."""
