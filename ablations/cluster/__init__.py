"""Studies on a SLURM cluster: submission, reconciliation, work on the nodes."""
