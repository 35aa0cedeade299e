"""The commands for the first hour: a demo, lists, a study's description, and a recipe for a user's data."""
