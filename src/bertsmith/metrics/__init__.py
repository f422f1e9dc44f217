"""Metrics of the field, as shares of one, and confidence intervals over random seeds."""
