"""Write a recipe for own data: `ablate init`."""
