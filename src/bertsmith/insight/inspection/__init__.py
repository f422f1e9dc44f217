"""Inspection: what a model looks at, predicts and knows, as figures of texts on one page.

`inputs` is a text as a network reads it, and `trace` one pass over it: hidden vectors by layer and attention weights.
From it `attention_maps` has every head with its kind (`head_kinds`) and `rollout`, `layer_predictions` the prediction
head on every layer (the logit lens), `masked_runs` every word masked once, and `reading` all of these.
`attributions` are integrated gradients of a decision (`attribution_targets`), `neighbours` the nearest words and
contexts, `projection` and `points` a map by PCA, t-SNE and UMAP, `time_figures` those of recurrent networks.
`comparison` finds where two readings part. `assembly` computes all of it for several models (`subject`) and texts
(`inspected_text`), and `inspection` is the result: a page, JSON (`encoded` packs arrays) or `pictures`.
"""
