"""Intervals, tests and verdicts: arrays in, numbers out."""
