"""Asking SLURM for its queue, limits, partitions and policies."""
