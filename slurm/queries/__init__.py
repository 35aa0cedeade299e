"""Queries of SLURM's job queue, limits and partitions."""
