"""The figures of one trained model."""
