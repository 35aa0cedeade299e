"""Two sets of results compared arm by arm."""
