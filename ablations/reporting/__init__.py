"""What users see of a study: progress, status, logs, published tables."""
