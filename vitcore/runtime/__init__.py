"""The device of a training, and its memory, kernels and compiled code."""
