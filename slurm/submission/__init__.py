"""Job arrays: written to disk, passed to sbatch once, run on a node."""
