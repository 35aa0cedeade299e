"""Write a recipe for a user's data: `ablate init`."""
