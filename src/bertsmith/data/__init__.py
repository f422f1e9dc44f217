"""Data: from files to batches.

`corpus` reads text, `shards` holds it tokenised; `packing` plans the sequences of an epoch and packs them into flat
batches of a fixed size, and `loader` makes these ahead of time. Every random choice is a pure function of a position.

`labelled` reads labelled files of any format as `examples`; `sampler` shuffles them by position, and `rows` batches
sequences of any length for inference.
"""
