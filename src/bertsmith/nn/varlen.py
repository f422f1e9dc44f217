"""Variable-length attention: kernels for a GPU in half precision, which read sequences of any length end to end."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.nn.attention import Kernel, Sequences
from bertsmith.nn.window import Window


@dataclass(eq=False)
class Varlen(Kernel):
    """torch's flash attention of variable length, for self-attention and cross-attention. Dao 2023."""

    queries: Sequences
    keys: Sequences

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        # The public varlen_attn calls this same operation with dropout fixed at 0. These arguments are the same in
        # torch 2.11 and 2.13, and the gradient is built in.
        (bounds, longest, _), (key_bounds, longest_key, _), window = self.queries, self.keys, self.window
        left, right = window.sizes
        sizes = {} if window.full or window.causal else {"window_size_left": left, "window_size_right": right}
        attended: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, bounds, key_bounds, longest, longest_key, dropout, window.causal, False, **sizes
        )[0]
        return attended


@dataclass(eq=False)
class Short(Kernel):
    """Our Triton kernel for up to 256 tokens, in compiled steps.

    Forward and backward of 65,536 tokens, ragged up to 128, take 1.02 ms where torch's `varlen_attn` takes 2.13 and
    FlexAttention 3.10; with dropout, which these do not have, 1.15 ms (H200, bench/results/beside-torch-h200.json).
    """

    sequences: Sequences

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        from bertsmith.nn.kernels.attention_short import short_attention  # needs Triton

        return short_attention(query, key, value, *_arguments(self, query, dropout))

    def attend_qkv(self, qkv: Tensor, dropout: float = 0.0) -> Tensor:
        from bertsmith.nn.kernels.attention_short import qkv_attention  # needs Triton

        return qkv_attention(qkv, *_arguments(self, qkv, dropout))


@dataclass(eq=False)
class Long(Kernel):
    """Our Triton kernel for longer sequences, in compiled steps.

    The same, ragged up to 512: 1.45 ms, 2.46 by `varlen_attn` and 3.78 by FlexAttention; with dropout 1.68 ms.
    """

    sequences: Sequences

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        from bertsmith.nn.kernels.attention_long import long_attention  # needs Triton

        return long_attention(query, key, value, *_arguments(self, query, dropout))

    def attend_qkv(self, qkv: Tensor, dropout: float = 0.0) -> Tensor:
        from bertsmith.nn.kernels.attention_long import qkv_attention  # needs Triton

        return qkv_attention(qkv, *_arguments(self, qkv, dropout))


@dataclass(eq=False)
class Biased(Kernel):
    """`Short` with relative position bias, which torch's flash attention does not have.

    With 16 heads the bias adds a tenth, 0.98 to 0.89 ms (H200, bench/results/attention-short.json).
    """

    sequences: Sequences
    bias: Float[Tensor, "H Q S"]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        from bertsmith.nn.kernels.attention_bias import biased_attention  # needs Triton

        return biased_attention(query, key, value, self.bias, *_arguments(self, query, dropout))


def _arguments(
    kernel: Short | Long | Biased, like: Tensor, dropout: float
) -> tuple[Tensor, int, float, Tensor | None, Window]:
    """Those of our Triton kernels; the seed of dropout is drawn by torch's generator of the device."""
    seed = torch.randint(1 << 62, (), device=like.device) if dropout else None
    return kernel.sequences.bounds, kernel.sequences.longest, dropout, seed, kernel.window
