"""What `ablate status` and `ablate logs` show: read from the run directory and from SLURM, changing nothing."""
