"""Strings into numbers and back.

`tokenizer` holds the vocabulary and cuts text by it; `folder` keeps it; `pieces` learns one; `measure` says how well it
fits; `sentences` splits running text. `panic` turns what the libraries throw into errors a person can act on.
"""
