"""The data: one row per decision, read, checked and put in order."""
