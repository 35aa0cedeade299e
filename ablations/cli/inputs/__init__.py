"""What commands do with their arguments: studies, settings, options and folders."""
