"""verl: a plug-in to the released package; ``ascribe.engines.verl.plugin`` is its entry point.

The modules here import verl, Ray and torch: they are loaded by verl's own processes alone.
"""
