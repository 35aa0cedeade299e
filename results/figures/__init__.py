"""The suite's figures, one file each.

A figure function takes a study, its table and an empty matplotlib Figure, draws on it, and returns the lines to write
below. Figures consist of panels, which take data frames or arrays and Axes, so that your own figures can use them.
"""
