"""The command `ablate gate`."""
