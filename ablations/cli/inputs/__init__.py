"""Resolution of command-line arguments into studies, settings, options and folders."""
