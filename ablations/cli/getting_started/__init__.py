"""The commands for new users: a demo, lists, a study's description, and a recipe for a user's data."""
