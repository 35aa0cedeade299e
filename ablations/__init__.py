"""What varies, what is still missing, and driving it: imports vitcore, slurm and results."""
