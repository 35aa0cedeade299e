"""Plans of studies: their arms and trials, the trials still to do, and the estimated cost."""
