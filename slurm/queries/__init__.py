"""Query SLURM's queue, limits, partitions and policies."""
