"""Runners: loaded pairs that write replies, on the CPU or a GPU."""
