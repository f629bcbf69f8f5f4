"""Measurements against peers; each file runs by itself, ``python -m benchmarks.run`` runs them all."""
