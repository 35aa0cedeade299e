"""The kinds of figure that a study may name, one file each.

Register a kind twice: its name in FIGURES of results/names.py, and its function in DRAW of results/figures/plots.py.
The names stand apart because a plan is checked without loading matplotlib.
"""
