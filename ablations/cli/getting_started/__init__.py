"""The commands of the first hour: what there is, a demo, a recipe for own data."""
