"""Runs trials: the pool of workers, the worker, faults and retries."""
