"""Networks, the table of the family, text generation, and model folders in Hugging Face's format.

    transformer      the one network made of attention; transformer_config: its sizes and choices
    vision_transformer  its layers on patches of images: ViT and DeiT; vision_config, vision_family, patches
    encoder_decoder  two transformers: an encoder, and a decoder with cross-attention
    recurrent        RNN, LSTM and GRU language models
    seq2seq          LSTM encoder and decoder, with or without attention
    elmo             character CNN and two LSTM stacks, one for each direction
    static           word vectors as a network without layers
    word2vec         the two embedding tables of word2vec and their folder; word_vectors: files in its formats
    family           every member, as the difference from its parent
    networks         all networks by their configuration
    counts           their parameters and FLOPs
    generation       sampling, beam search and prompt-lookup decoding with a cache
    hf               configs and state dicts of Hugging Face folders, read and written

A network that is not a transformer gets a file and a line in `networks.NETWORKS` and `networks.NATIVE`.
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
