"""The benchmarks of `ablate bench`, which report speeds as ratios to a reference on the same machine."""
