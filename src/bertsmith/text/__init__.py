"""Text into token ids and back.

tokenizer        encode and decode; special_tokens: their names, roles and templates; long_texts: in parts
train · extend   training a tokenizer, and adding tokens to one
fertility        tokens per word
folder           tokenizer.json and tokenizer_config.json; published, sentencepiece: vocabularies as first published
limits           tokenizer rules that are refused; library_errors: errors of the tokenizer library
characters       character ids of words (ELMo)
sentences        sentence splitting
language         script and language of a text
"""
