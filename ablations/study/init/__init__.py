"""Writing of recipes for the data of users, by `ablate init`."""
