"""Recipes for users' own data: how `ablate init` chooses and writes their settings."""
