"""Training by one config file, on TRL or verl."""
