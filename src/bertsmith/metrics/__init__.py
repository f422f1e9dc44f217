"""Metrics: the field's own scores, as parts of one; and how sure a mean over several seeds is."""
