"""Looking at what a run has done.

`draw` turns figures into curves, `report` puts curves, examples and facts on one page that needs no network, `table`
does so with results side by side, `probes` reads labels off every layer and `layers` draws what it finds; `card` is the
page that travels with a model folder.
"""
