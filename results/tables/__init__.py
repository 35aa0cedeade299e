"""The tables of a study, and what renders them."""
