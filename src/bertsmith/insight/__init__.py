"""Pages and pictures about models: reports, evaluations, leaderboards, probes and model cards.

`charts` draws learning curves, `report` is the page of a pretraining run and `evaluation` that of fine-tuning, `table`
has results side by side, `probes` fits linear classifiers to every layer and `layers` draws their accuracy;
`model_card` is the README of a model folder. Pages load nothing from the network.
"""
