"""Names of the metrics, axes and measures that a study may use, without the code that computes or draws them.

METRICS are those of each ViT trial. A trial may have others: readers take whatever numbers it has.
"""

METRICS = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "train_loss")
AXES = {"step": "training step", "epoch": "epochs of training", "images": "training images", "seconds": "training time"}
MEASURES = ("params", "flops", "train_seconds", "images_per_second", "steps", "images", "diverged_at_step")
