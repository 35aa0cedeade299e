"""`ablate bench`: speed as ratios, measured in alternation with a reference, in one run on one machine."""
