"""Names of the metrics, axes and measures that a study may use, without the code that computes or draws them.

vitcore/training/evaluation.py computes the metrics. To add a metric of each evaluation, also add it to MetricsLine
(store/schemas/trials.py), HISTORY (study_results.py) and, for trackers, CURVES (trackers.py).
"""

METRICS = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "train_loss")
AXES = {"step": "training step", "epoch": "epochs of training", "images": "training images", "seconds": "training time"}
MEASURES = ("params", "flops", "train_seconds", "images_per_second", "steps", "images", "diverged_at_step")
