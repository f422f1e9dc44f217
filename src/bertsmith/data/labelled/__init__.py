"""Labelled data: CSV, TSV, JSON, Parquet, CoNLL, SQuAD, GLUE, treebanks and parallel text, read as examples."""
