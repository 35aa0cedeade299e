"""Studies on a SLURM cluster: submission, reconciliation of queue and disk, and the work on the nodes."""
