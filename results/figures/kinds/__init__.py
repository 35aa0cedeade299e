"""The kinds of figures that a study may name, one file each."""
