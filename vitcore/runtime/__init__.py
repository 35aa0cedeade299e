"""The device that a trial runs on, and its memory, kernels and compiled code."""
