"""GGUF files: written from a checkpoint of ours, and run by llama.cpp through llama-cpp-python."""
