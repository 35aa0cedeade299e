"""Queries of SLURM's job queue, limits, partitions and policies."""
