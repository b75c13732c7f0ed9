"""The laboratory: the papers' environments, runs of training, and an audit of estimators."""
