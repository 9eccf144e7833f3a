"""Trained heads: networks that draft from what a target of our own has between its layers."""
