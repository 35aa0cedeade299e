"""Vision Transformers and their training by vitcore, as a trainable: `ablations.trainables.vit.vit:VIT`."""
