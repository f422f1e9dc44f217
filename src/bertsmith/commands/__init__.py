"""Commands: one file for each verb of the command line, and `api`, the same verbs as Python calls."""
