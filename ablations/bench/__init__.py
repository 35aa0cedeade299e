"""The benchmarks of `ablate bench`, which report speeds as ratios to a reference.

All implementations run alternately, in one run on one machine.
"""
