"""Schemas of the JSON files of a run directory, checked when a file is read.

A file is broken if it lacks a required field, or if a value has the wrong type or is out of range. The error names the
file and the field. Unknown fields are accepted, because a later version may have written them.
"""
