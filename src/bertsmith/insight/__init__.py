"""Looking at what a run has done.

`draw` turns figures into curves, `report` puts curves, examples and facts on one page that needs no network,
`card` is the page that travels with a model folder.
"""
