"""Calibration: whether intervals cover, verdicts err and plans have power as often as promised."""
