"""Figures of studies and of inspected trials.

Figures consist of panels, which take data frames or arrays and Axes, so that your own figures can use them.
"""
