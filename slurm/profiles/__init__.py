"""Profiles, which say what a user asks a SLURM cluster for: their files, their checks and a first draft."""
