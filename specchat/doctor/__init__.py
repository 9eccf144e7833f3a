"""Checks of this machine, each of which gives findings in words. Nothing is changed, no network is used."""
