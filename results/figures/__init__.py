"""Figures of studies and of inspected trials.

Figures consist of panels. The functions that draw panels take data frames or arrays, and matplotlib Axes, so a user's
figure can call them too.
"""
