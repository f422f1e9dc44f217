"""A corpus: text files of any format, read as documents of sentences in bounded memory."""
