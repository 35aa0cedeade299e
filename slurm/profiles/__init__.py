"""Profiles, which state what a user requests from a SLURM cluster: files, checks and a first draft."""
