"""What `ablate status` shows: read from the run directory and from SLURM, changing nothing."""
