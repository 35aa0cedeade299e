"""The commands of `ablate`, a file a group. What is heavy is imported where it is used."""
