"""specchat: chat with a local model that answers faster by speculative decoding, without changing a word."""

__version__ = "0.1.0"
