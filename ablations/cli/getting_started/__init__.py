"""Commands for the first hour: lists, a demo, a recipe for the user's own data."""
