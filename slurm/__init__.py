"""Any list of tasks through SLURM, each effect once. Imports submitit, knows no ViT."""
