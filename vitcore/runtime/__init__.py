"""Where and how a training computes: device, memory, kernels, compiled code."""
