"""User-facing views of studies that run or are complete: progress, status, logs, tables."""
