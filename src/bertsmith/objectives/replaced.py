"""Replaced token detection: a generator puts tokens in, and a discriminator finds them. The objective of ELECTRA."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.errors import RecipeError
from bertsmith.models.networks import Network
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import DiscriminatorHead, MaskedLMHead
from bertsmith.nn.kernels import linear_cross_entropy_cpu
from bertsmith.objectives.base import Pretraining, Term
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masking import MaskingConfig
from bertsmith.random_bits import mix
from bertsmith.text.tokenizer import Tokenizer

SAMPLING_KEY = -1  # keeps random bits of sampling apart from those of masking, whose keys are positions
BLOCK_WORDS = 128  # words of a block; about the square root of the size of BERT's vocabulary


@dataclass(frozen=True, kw_only=True)
class ReplacedBatch(SelectedBatch):
    """Masked tokens for the generator, and all tokens for the discriminator."""

    random_bits: Int[Tensor, "N 2"]  # for each target position, where a token is sampled
    text_mask: Bool[Tensor, "T"]  # which tokens are text, and no padding


class ReplacedTokenDetection(Pretraining):
    """A small generator fills masked positions, and the discriminator predicts for every token whether it was replaced.

    Clark et al. 2020, section 2. The generator learns masked language modelling; a token sampled from its distribution
    replaces each masked one, without a gradient through the sampling. The trunk, which is the exported model,
    discriminates all tokens, special ones too. A sampled token that equals the true one counts as original. Both
    networks share their embedding tables.

    Departs from the paper's code: a text is not split into two segments, and every chosen token is masked, where the
    code keeps 15 % of them (`keep_rate = 0.15`).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(MaskingConfig):
        keep_rate: float = 0.0  # share of the chosen tokens that stay as they are
        random_rate: float = 0.0  # share of the chosen tokens that become a random token
        generator_size: float = 0.25  # width, heads and feed-forward width of the generator, as a share of the trunk's
        discriminator_weight: float = 50.0  # weight of the discriminator's loss, which is smaller than the generator's
        # Tokens with a discriminator loss; "none": the trunk predicts the true tokens instead. Section 3.4.
        discriminator_loss: Literal["all", "masked", "none"] = "all"

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 < self.generator_size <= 1:
                raise ValueError(
                    f"generator_size is {self.generator_size}. Give a share of the network, above 0 and at most 1"
                )
            if not 0 < self.discriminator_weight < np.inf:
                raise ValueError(f"discriminator_weight is {self.discriminator_weight}. Give more than 0, usually 50")

        @property
        def masking(self) -> dict[str, object]:
            """The settings of masking, for the generator."""
            return {part.name: getattr(self, part.name) for part in fields(MaskingConfig)}

    needs = "encoder"
    trunk: Transformer
    config: Config

    def __init__(self, trunk: Network, config: Config) -> None:
        super().__init__(trunk, config)
        shape = self.trunk.config
        if config.discriminator_loss == "none":
            options = (shape.activation, shape.norm_eps, shape.biases)
            self.mlm_head = MaskedLMHead(shape.width, shape.vocabulary, *options, shape.table)
        else:
            self.discriminator = DiscriminatorHead(shape.width, shape.activation)
        small = Transformer(generator_config(shape, config.generator_size))
        small.share_embeddings(self.trunk)
        self.generator = MaskedLM(small, MaskedLM.Config(pairs="none", **config.masking))  # type: ignore[arg-type]

    def forward(self, batch: ReplacedBatch) -> dict[str, Term]:
        hidden = self.generator.trunk(batch.tokens, selected=batch.target_positions)
        masked, words = self._generator_term(hidden, batch.targets, batch.random_bits)
        terms = {"masked": masked}
        ids = batch.tokens.ids.index_copy(0, batch.target_positions, words.to(batch.tokens.ids.dtype))
        tokens, replaced = replace(batch.tokens, ids=ids), words != batch.targets
        match self.config.discriminator_loss:
            case "all":
                every = torch.zeros_like(batch.text_mask).index_copy(0, batch.target_positions, replaced)
                terms["replaced"] = self._discriminator_term(
                    self.discriminator(self.trunk(tokens)), every, batch.text_mask
                )
            case "masked":
                scores = self.discriminator(self.trunk(tokens, selected=batch.target_positions))
                terms["replaced"] = self._discriminator_term(scores, replaced, torch.ones_like(replaced))
            case "none":
                guessed = self.mlm_head(
                    self.trunk(tokens, selected=batch.target_positions), self.trunk.embedding.weight
                )
                terms["guessed"] = self.generator.cross_entropy_term(guessed, batch.targets)
        return terms

    def _generator_term(
        self, hidden: Float[Tensor, "N D"], targets: Int[Tensor, "N"], random_bits: Int[Tensor, "N 2"]
    ) -> tuple[Term, Int[Tensor, "N"]]:
        """The generator's MLM loss, and a token for each position, sampled from its distribution."""
        table, head = self.trunk.embedding.weight, self.generator.mlm_head
        if self.training and linear_cross_entropy_cpu.available(hidden, table):
            words, noise = torch.empty_like(targets), gumbel_noise(random_bits, block_count(len(table)) + BLOCK_WORDS)

            def sample(rows: slice, probabilities: Tensor) -> None:
                words[rows] = sample_from_probabilities(probabilities, noise[rows])

            hidden = head.transform(hidden)
            total = linear_cross_entropy_cpu.linear_cross_entropy(hidden, table, head.bias, targets, sample)
            return Term(total, None), words
        logits = self.generator.logits(hidden)  # N V
        return self.generator.cross_entropy_term(logits, targets), sample_from_logits(logits, random_bits)

    def _discriminator_term(
        self, logits: Float[Tensor, "N"], replaced: Bool[Tensor, "N"], real: Bool[Tensor, "N"]
    ) -> Term:
        losses = F.binary_cross_entropy_with_logits(logits.float(), replaced.float(), reduction="none")
        total = torch.where(real, losses, 0.0).sum()
        if self.training:
            return Term(total, None, self.config.discriminator_weight)
        predicted, positive = logits > 0, replaced & real
        correct = ((predicted == replaced) & real).sum()
        recall = {"found": ((predicted & positive).sum(), positive.sum())}
        return Term(total, correct, self.config.discriminator_weight, recall)

    def hidden_matrices(self) -> dict[str, int]:
        return super().hidden_matrices() | {
            f"generator.{name}": count for name, count in self.generator.hidden_matrices().items()
        }

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], ReplacedBatch]:
        return Collator(self.config, self.generator.collator(tokenizer))

    def validation_collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], ReplacedBatch]:
        """15 % of the tokens are masked, all by [MASK], as for other masked language models."""
        return Collator(self.config, self.generator.validation_collator(tokenizer))

    @property
    def prediction_share(self) -> float:
        return self.config.mask_rate * (2 if self.config.discriminator_loss == "none" else 1)

    def flops(self, attended: float) -> float:
        predicted = self.config.mask_rate if self.config.discriminator_loss == "none" else 0.0
        discriminated = {"all": 1.0, "masked": self.config.mask_rate, "none": 0.0}[self.config.discriminator_loss]
        own = self.trunk.config.flops(attended, predicted) + discriminated * 6 * self.trunk.config.width**2
        return own + self.generator.flops(attended)

    @property
    def exports(self) -> dict[str, Pretraining]:
        return {"model": self, "generator": self.generator}


def generator_config(shape: TransformerConfig, share: float) -> TransformerConfig:
    """The generator's network: as deep as the trunk, with a share of its width. Section 3.2 and table 6."""
    heads = max(1, round(share * shape.heads))
    width = heads * max(1, round(share * shape.width / heads))
    try:
        return replace(
            shape,
            width=width,
            embedding_width=0 if width == shape.table else shape.table,  # the tables are shared with the trunk
            heads=heads,
            feed_forward=max(1, round(share * shape.feed_forward)),
            pooler="gelu",  # no pooler is pretrained, and the generator is exported as an ELECTRA
        )
    except ValueError as error:
        raise RecipeError("objective.generator_size", str(error)) from None


@dataclass(frozen=True)
class Collator:
    """From packed text to a batch: masked for the generator, with random bits for its samples."""

    config: ReplacedTokenDetection.Config
    masked_collator: Callable[[PackedBatch], SelectedBatch]

    def __call__(self, packed: PackedBatch) -> ReplacedBatch:
        batch = self.masked_collator(packed)
        draws = mix(packed.key, SAMPLING_KEY, batch.target_positions.numpy()).view(np.int32).reshape(-1, 2)
        real, counts = np.arange(len(packed.ids)) < packed.real_tokens, dict(batch.counts)
        match self.config.discriminator_loss:
            case "all":
                counts["replaced"] = packed.real_tokens
            case "masked":
                counts["replaced"] = len(draws)
            case "none":
                counts["guessed"] = len(draws)
        return ReplacedBatch(
            tokens=batch.tokens,
            target_positions=batch.target_positions,
            targets=batch.targets,
            random_bits=torch.from_numpy(draws),
            text_mask=torch.from_numpy(real),
            counts=counts,
        )


@torch.no_grad()
def sample_from_logits(logits: Float[Tensor, "N V"], random_bits: Int[Tensor, "N 2"]) -> Int[Tensor, "N"]:
    """A word for each row, sampled from its softmax: first a block of words by their total probability, then a word.

    The Gumbel-max trick: the argmax of logits plus Gumbel noise is such a sample. By blocks, it takes a hundredth of
    the noise.
    """
    words = _split_into_blocks(logits.float(), -torch.inf)
    block, noise = _gumbel_argmax(words.logsumexp(-1), gumbel_noise(random_bits, words.shape[1] + BLOCK_WORDS))
    return block * BLOCK_WORDS + _gumbel_argmax(_take_block(words, block), noise)[0]


def sample_from_probabilities(probabilities: Float[Tensor, "N V"], noise: Float[Tensor, "N M"]) -> Int[Tensor, "N"]:
    """The same words, from probabilities and noise that are computed already."""
    words = _split_into_blocks(probabilities, 0.0)
    block, noise = _gumbel_argmax(words.sum(-1).log_(), noise)
    return block * BLOCK_WORDS + _gumbel_argmax(_take_block(words, block).log_(), noise)[0]


def block_count(vocabulary: int) -> int:
    """The number of blocks of a vocabulary."""
    return -(-vocabulary // BLOCK_WORDS)


def _split_into_blocks(numbers: Float[Tensor, "N V"], filler: float) -> Float[Tensor, "N M B"]:
    missing = -numbers.shape[-1] % BLOCK_WORDS
    # F.pad would copy all numbers even if nothing is missing.
    filled = F.pad(numbers, (0, missing), value=filler) if missing else numbers
    return torch.unflatten(filled, 1, (-1, BLOCK_WORDS))


def _gumbel_argmax(
    logits: Float[Tensor, "N M"], noise: Float[Tensor, "N K"]
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N L"]]:
    """The argmax of each row after noise is added, and the unused noise."""
    count = logits.shape[1]
    return (logits + noise[:, :count]).argmax(-1), noise[:, count:]


def _take_block(words: Float[Tensor, "N M B"], block: Int[Tensor, "N"]) -> Float[Tensor, "N B"]:
    """The words of one block, for each row."""
    return words.gather(1, block[:, None, None].expand(-1, 1, BLOCK_WORDS))[:, 0]


def gumbel_noise(random_bits: Int[Tensor, "N 2"], count: int) -> Float[Tensor, "N M"]:
    """Gumbel noise, `count` numbers for each row: a hash of the row's random bits and the number's index.

    So a sample depends on its row alone, validation samples the same every time, no random generator's state changes,
    and a compiled graph is not broken. Two rounds of xor-shift and multiply, as in dropout of a compiled step.
    """
    one, other = random_bits.unsqueeze(-1).unbind(1)  # N 1 each
    bits = torch.arange(count, device=random_bits.device, dtype=torch.int32) + one
    bits = (bits ^ (bits >> 16 & 0xFFFF)) * 0x7FEB352D  # a shift repeats the sign, and the mask takes it off again
    bits = (bits ^ (bits >> 15 & 0x1FFFF) ^ other) * (0x846CA68B - (1 << 32))
    # The largest noise comes from numbers near zero, where floats are densest.
    uniform = ((bits >> 1 & 0x7FFF_FFFF).float() + 0.5) * 2.0**-31
    return -torch.log(-torch.log1p(-uniform))
