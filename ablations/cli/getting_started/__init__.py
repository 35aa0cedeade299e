"""The commands for the first hour: a demo, lists, and a recipe for a user's data."""
