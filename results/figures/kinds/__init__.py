"""The kinds of figure that a study may name, one file each."""
