"""Figures of studies and of inspected trials.

Functions that draw a panel take data frames or arrays and matplotlib Axes, and can be used in other figures. A `frame`
has rows of `frame.arms_frame`, whose column `at` is the position on the horizontal axis. `seeds` and `points` have rows
of `frame.seeds_frame`.
"""
