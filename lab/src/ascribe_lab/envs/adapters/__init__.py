"""Environments of other conventions as Ascribe environments, one module for each."""
