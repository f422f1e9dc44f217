"""Shards: text tokenised once, on all cores, into memory-mapped files that are hashed and can be resumed."""
