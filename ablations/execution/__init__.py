"""Execution of trials: the pool of workers, the worker process, the classification of errors, and retries."""
