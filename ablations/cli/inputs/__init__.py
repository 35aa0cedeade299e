"""The arguments of commands: studies, settings, options and folders."""
