"""Files into batches.

`corpus` reads text, `prepare` tokenises it once into `shards`; `plan` cuts an epoch into sequences, `pack` lays them
into flat batches of a fixed size, `loader` makes them ahead of time. Every choice is a pure function of its position.

`labelled` reads what people have said of texts, whatever the file, as `examples`; `shuffled` gives them by position,
and `rows` takes sequences of any length through a network in the order they came in.
"""
