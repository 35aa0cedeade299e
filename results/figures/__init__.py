"""The figures of the suite, one file each.

A figure takes a study, its table and an empty matplotlib Figure (of a trial's inside: an Inspection and the Figure); it
returns the lines to write under it. It is made of panels, which take data frames (arrays) and Axes and return the Axes,
so that they can stand in a figure of your own.
"""
