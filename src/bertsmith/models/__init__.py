"""Wholes: the networks, the table of the family, and folders in Hugging Face's words.

    transformer      the one network made of attention, on flat tokens
    encoder_decoder  two of it: one reads a text, the other writes
    recurrent        a text read word by word, all that came before in one state
    seq2seq          LSTMs that read a text, and others that write one; carried: what these keep from token to token
    elmo             words made of letters, read from both ends apart
    static           word vectors, as a network that has no layers
    decoder          what can write, made ready to do it one token at a time
    search           which token to go on with, from the scores of all
    family           every member, as the difference from its parent
    dialects         transformers' words for each kind of network: tables, read both ways
    foreign          our settings and weights in those words, and back
    sentence         how tokens become a text's vector, in sentence-transformers' words
    word2vec         two tables of word vectors, and word_vectors the field's files of them
    folder           reading and writing a Hugging Face folder, with nothing trusted before it is checked
    networks         all of them, by what describes them
    own              the settings of those that transformers has no class for, in a folder of ours

A network that is not a transformer gets a file of its own and a line in `networks.OWN`.
"""

import sys
from importlib import import_module
from types import ModuleType


class _Callable(ModuleType):
    """`bertsmith.models("bert*")` lists names, although this package has the same name as that function."""

    def __call__(self, pattern: str = "*") -> list[str]:
        names: list[str] = import_module("bertsmith.commands.api").models(pattern)
        return names


sys.modules[__name__].__class__ = _Callable
