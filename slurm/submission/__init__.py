"""Submission of job arrays, which are written to disk, passed to sbatch once and run on nodes."""
