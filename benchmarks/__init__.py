"""Benchmarks of speed, run from a clone of the repository. They report ratios of sides that took turns."""
