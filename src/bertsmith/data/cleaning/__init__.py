"""Cleaning of text for pretraining: near-duplicates, other languages, quality rules, repeated lines, contamination."""
