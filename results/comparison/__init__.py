"""The comparison of two sets of results, arm by arm."""
