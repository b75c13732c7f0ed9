"""Training on TRL: episodes of the laboratory's environments."""
