"""Tables of studies, and the writers that render them."""
