"""What a command is given: studies, settings, options and folders."""
