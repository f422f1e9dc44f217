"""The server: `bertsmith serve` answers over HTTP with any model folder that `bertsmith.load` opens.

Three kinds of process, so that refusing a request never shares an interpreter with inference:

supervisor       binds the port, starts the others, restarts what dies, reloads models, and ends in order
front            accepts, checks limits, parses and tokenises; it never imports torch
model_process    loads the models, and runs everything that is waiting as one batch

In a front, a request goes through protocol (HTTP and its deadlines) -> application (key, limits, errors) -> routes ->
texts (tokenising) -> model_client; over a Unix socket (wire) to batcher -> verbs in the model process; and back.
"""
