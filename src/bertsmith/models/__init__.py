"""Wholes: the networks, the table of the family, and folders in Hugging Face's words.

    transformer  the one network made of attention: an encoder on flat tokens
    family       BERT's sizes, each as the difference from its parent
    foreign      our names of weights and settings, and theirs: reversible tables
    sentence     how tokens become a text's vector, in sentence-transformers' words
    folder       reading and writing a Hugging Face folder, with nothing trusted before it is checked

A network that is not a transformer gets a file of its own and a line in `NETWORKS`.
"""

from bertsmith.models.transformer import Transformer

NETWORKS = {"transformer": Transformer}
