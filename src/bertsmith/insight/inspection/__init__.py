"""Inspection: what a model looks at, predicts and knows, as figures of one or two texts.

`inputs` is a text as a network reads it, and `trace` one pass over it: hidden vectors by layer and attention weights.
From it `attention_maps` has every head with its kind (`head_kinds`) and attention rollout, `layer_predictions` the
prediction head on every layer (the logit lens), `masked_runs` every word masked once, and `reading` all of them as
JSON; `comparison` finds where two readings part. `encoded` packs arrays for a page.
"""
