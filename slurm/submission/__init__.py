"""Job arrays: written to disk, handed to sbatch once, run on a node."""
