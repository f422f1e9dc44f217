"""Packing: sequences cut from shards and laid into flat batches of a fixed number of tokens, by position alone."""
