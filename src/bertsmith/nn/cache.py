"""The cache of generation: what a network keeps of the tokens so far, so that a step reads the newest ones alone.

    nn/kv_cache.py   keys and values of all tokens, of transformers; of an encoder-decoder also the memory's
    nn/rnn/cache.py  one state for each beam, of recurrent networks; of an LSTM decoder also the encoded source

A network makes an empty cache (`cache`), reads prompts into it (`prefill`), and then token after token (`step`). What
the search needs is the same for all: beams that continue others, and samples. Everything is changed in place and on the
device, so that a step can be captured as a CUDA graph.
"""

from abc import ABC, abstractmethod

from jaxtyping import Int
from torch import Tensor


class Cache(ABC):
    """The past of sequences with the same number of beams each."""

    fixed = False  # whether a step never changes the size of a tensor, for CUDA graphs

    @abstractmethod
    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        """Let each beam continue its parent, another beam of the sequence or itself."""

    @abstractmethod
    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence `repeats` times, one after the other, to be continued independently."""
