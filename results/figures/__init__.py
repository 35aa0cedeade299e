"""The figures of the suite, one file each.

A figure takes a study, its table and an empty matplotlib Figure, and returns the lines to write under it. It is made of
panels, which take data frames and Axes and return the Axes, so that they can stand in a figure of your own.
"""
