"""Figures of studies and of inspected trials."""
