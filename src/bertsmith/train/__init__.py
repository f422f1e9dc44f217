"""Training.

`trainer` is the loop. `step` is one update: `forward`, backward, `optimizers`, or a replay from `cuda_graphs`;
`schedules` and `clock` set the learning rate and the end; `evaluate` measures. By `checkpoint`, `lock`, `signals` and
`log` a killed run resumes exactly. `word2vec` is a separate loop, for word vectors.
"""
