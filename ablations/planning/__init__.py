"""Plans: which arms and trials there are, what is missing, and what it will cost."""
