"""What commands show and do that concerns Vision Transformers and their data alone."""
