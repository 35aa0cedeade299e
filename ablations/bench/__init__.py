"""`ablate bench`: speed as ratios, each measured in turn with what it is compared to, in one run on one machine."""
