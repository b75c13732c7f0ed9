"""Training on verl: episodes of the laboratory's environments, and a CPU platform.

The modules here import verl, Ray and torch: verl's own processes load them.
"""
