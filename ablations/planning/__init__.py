"""Plans: arms and trials written out, what is missing, what it will cost."""
