"""Resolve command-line arguments into studies, settings, options and folders."""
