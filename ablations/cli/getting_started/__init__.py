"""Commands for the first hour: a demo, lists, a recipe for the user's data."""
