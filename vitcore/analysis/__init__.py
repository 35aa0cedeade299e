"""The analysis of models: what they cost, and what trained models have learned."""
