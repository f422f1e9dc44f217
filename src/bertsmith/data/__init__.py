"""Files into batches.

`corpus` reads text, `prepare` tokenises it once into `shards`; `plan` cuts an epoch into sequences, `pack` lays them
into flat batches of a fixed size, `loader` makes them ahead of time. Every choice is a pure function of its position.
"""
