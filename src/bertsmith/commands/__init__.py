"""Commands: the verbs of the command line, one file for each or for a few of a kind; `api`: the same from Python."""
