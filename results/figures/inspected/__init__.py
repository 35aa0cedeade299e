"""The figures of one trained model, one file each."""
