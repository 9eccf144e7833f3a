"""Threads that run passes together."""
