"""What users see of a study while it runs and when it is complete: progress, status, logs, tables."""
