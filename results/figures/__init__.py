"""Figures of studies and of inspected trials.

Functions that draw a panel take data frames or arrays and matplotlib Axes, so they also serve users' figures. A
`frame` has rows of `frame.arms_frame`; `seeds` and `points` have rows of `frame.seeds_frame`.
"""
