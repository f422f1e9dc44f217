"""The loop and what makes it trustworthy.

`trainer` is the loop; `optimizers`, `schedules` and `clock` say how the weights move and when it ends; `evaluate`
measures; `graphs` plays recorded steps on a GPU; `checkpoint`, `lock`, `signals` and `log` are why a killed run ends
exactly as if it had never been killed. `vectors` is a loop of its own, for word vectors.
"""
