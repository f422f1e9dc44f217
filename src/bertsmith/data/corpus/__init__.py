"""A corpus: any files of text, read as documents of sentences in bounded memory."""
