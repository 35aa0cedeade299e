"""The device, memory, kernels and compiled code of a training."""
