"""What people see of a study: progress, status, logs, published tables."""
