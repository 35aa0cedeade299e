"""Recipes for the data of users: `ablate init`."""
