"""The heart: propose, extend, judge, keep."""
