"""Results for experiment trackers: written to files here, without a network; the packages are optional extras."""
