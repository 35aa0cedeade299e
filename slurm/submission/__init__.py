"""The path of a job array: it is written to disk, passed to sbatch once, and run on nodes."""
