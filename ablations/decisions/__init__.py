"""Decide whether a proposed change is kept."""
