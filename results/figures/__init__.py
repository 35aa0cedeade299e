"""Figures of studies and of inspected trials.

Functions that draw a panel take data frames or arrays and matplotlib Axes, and can be used in other figures. A `frame`
has rows of `frame.arms_frame`; `seeds` and `points` have rows of `frame.seeds_frame`.
"""
