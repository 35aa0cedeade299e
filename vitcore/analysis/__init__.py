"""What a model costs, and what a trained one has learned."""
