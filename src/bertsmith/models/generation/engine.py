"""The generation engine: greedy decoding, sampling and beam search with a KV cache, one token at a time."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.prompt_lookup import speculative_decode
from bertsmith.models.generation.search import GenerationConfig, Step, beam_search, draw_uniforms, sample
from bertsmith.models.networks import EncoderDecoderNetwork, Network
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.transformer import Transformer
from bertsmith.nn.cuda_graph import capture
from bertsmith.nn.heads import ALIGNMENT
from bertsmith.nn.kv_cache import KVCache
from bertsmith.nn.prepacked import PrepackedLinear, can_prepack, prepack
from bertsmith.nn.rnn.cache import RecurrentCache
from bertsmith.nn.rnn.decoder_cache import DecoderCache

CACHE_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # bytes of keys and values that are kept at once
PRUNE_EVERY = 32  # tokens after which beams on a CPU give back the slots of branches that were given up


class GenerationEngine:
    """A trunk whose table of words also tells what comes next, its weights as the device reads them fastest.

    It goes on with what it is given; or, of two networks, the second writes about what the first has read, beginning
    with the token `start`. `never` are tokens that must not be written: padding and its like.
    """

    def __init__(
        self,
        trunk: Network,
        dtype: torch.dtype = torch.float32,
        *,
        prepack_weights: bool = True,
        forbidden_ids: Sequence[int] = (),
        decoder_start_id: int = 0,
    ) -> None:
        self.config, self.dtype, self.device = trunk.config, dtype, trunk.embedding.weight.device
        self.decoder_start_id = decoder_start_id
        self.prepacked = prepack_weights and self.device.type == "cpu" and can_prepack(dtype)
        self.forbidden_ids = torch.tensor(forbidden_ids, dtype=torch.long, device=self.device)
        self.trunk: Any  # each kind of network with a cache of its own kind
        table, self.logit_scale = _output_table(trunk)
        table, bias = table.detach().to(dtype), trunk.bias if isinstance(trunk, Recurrent) else None
        spare = -len(table) % ALIGNMENT if self.device.type == "cuda" else 0  # which has faster products for some sizes
        table = F.pad(table, (0, 0, 0, spare)) if spare else table
        words = nn.Linear(table.shape[1], table.shape[0], bias=bias is not None, device="meta")
        words.weight = nn.Parameter(table, requires_grad=False)
        if bias is not None:
            words.bias = nn.Parameter(F.pad(bias.detach().to(dtype), (0, spare)), requires_grad=False)
        self.lm_head: nn.Module | PrepackedLinear = words
        if self.device.type == "cpu" and isinstance(trunk, Transformer | EncoderDecoder):
            self.trunk, self.lm_head = (
                prepack_trunk(trunk, dtype, reorder=prepack_weights),
                PrepackedLinear(words, dtype, reorder=prepack_weights),
            )
        elif trunk.training or dtype != trunk.embedding.weight.dtype:
            self.trunk = copy.deepcopy(trunk).to(dtype).eval()
        else:
            self.trunk = trunk

    def prefill(
        self, rows: Sequence[Sequence[int]], max_new_tokens: int, beams: int = 1, samples: int = 1
    ) -> tuple[Float[Tensor, "_ V"], Step]:
        """Read texts; at most so many tokens come behind them, in ways or as samples: first scores, and the step."""
        tokens, trunk = Tokens.from_rows(rows).to(self.device), self.trunk
        room = (1 if self.is_encoder_decoder else tokens.max_length) + beams * max_new_tokens
        recorded = self.device.type == "cuda"
        cache = trunk.cache(len(rows), room + -room % ALIGNMENT if recorded else room, beams, self.dtype)
        if isinstance(trunk, EncoderDecoderNetwork):
            hidden = trunk.prefill(
                tokens, cache, Tokens.from_rows([[self.decoder_start_id]] * len(rows)).to(self.device)
            )
        else:
            hidden = trunk.prefill(tokens, cache)
        scores = self.logits(hidden)
        if samples > 1:
            cache.repeat_interleave(samples)
            scores = scores.repeat_interleave(samples, 0)
        writing = CachedStep(self, cache)
        if not recorded:
            return scores, writing
        cache.fixed = True
        return scores, CudaGraphStep(writing, (len(scores), beams), self.device)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether what is written is a text of its own, and does not go on with the one that was read."""
        return self.config.decoder_layers > 0

    def remaining(self, row: Sequence[int]) -> int:
        """How many tokens can be written at most."""
        return self.config.max_length - (1 if self.is_encoder_decoder else len(row))

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """How well each token would come next."""
        hidden = hidden.to(self.dtype)
        scores: Tensor = self.lm_head(hidden if self.logit_scale == 1 else hidden * self.logit_scale)[
            :, : self.config.vocabulary
        ]
        return scores.index_fill_(1, self.forbidden_ids, -torch.inf) if len(self.forbidden_ids) else scores


def _output_table(trunk: Network) -> tuple[Float[Tensor, "V D"], float]:
    """The table that tells words, and what vectors are multiplied by before their products with it are scores."""
    if isinstance(trunk, Recurrent):
        return trunk.output_weights[0], 1.0
    if not isinstance(trunk, EncoderDecoderNetwork):
        return trunk.embedding.weight, 1.0
    return (trunk.embedding.weight, trunk.logit_scale) if trunk.lm_head is None else (trunk.lm_head.weight, 1.0)


def prepack_trunk(
    trunk: Transformer | EncoderDecoder, dtype: torch.dtype, *, reorder: bool
) -> Transformer | EncoderDecoder:
    """A copy with packed layers; of two networks both."""
    if isinstance(trunk, Transformer):
        return prepack(trunk, dtype, reorder=reorder)
    light = copy.copy(trunk)
    halves = {name: prepack(getattr(trunk, name), dtype, reorder=reorder) for name in ("encoder", "decoder")}
    light._modules = {**trunk._modules, **halves}
    return light


@torch.inference_mode()
def generate_ids(
    decoder: GenerationEngine, rows: Sequence[Sequence[int]], config: GenerationConfig, stop_ids: Sequence[int] = ()
) -> list[list[list[int]]]:
    """For each prompt the tokens that are written, as often as there are to be samples."""
    found: list[list[list[int]]] = [[] for _ in rows]
    ends = torch.tensor(stop_ids, dtype=torch.long, device=decoder.device)
    searched = config.num_beams > 1
    ways, samples = (config.num_beams, 1) if searched else (1, config.samples)
    for part in _batches(rows, decoder, config):
        some = [rows[number] for number in part]
        left = [decoder.remaining(row) for row in some]
        scores, step = decoder.prefill(some, min(config.max_new_tokens, max(left)), ways, samples)
        limits = torch.tensor(left, device=decoder.device).repeat_interleave(samples)
        if searched:
            texts = [[text for text, _ in best] for best in beam_search(scores, step, config, limits, ends)]
        elif isinstance(step, CachedStep) and step.can_draft and len(limits) == 1 and config.temperature == 0:
            texts = [[speculative_decode(scores, step, step.rollback, config, some[0], left[0], ends)]]
        else:
            drawn = config.temperature > 0  # chance is worth its time only if it is asked
            chance = draw_uniforms(some, config) if drawn else torch.zeros(len(limits), config.max_new_tokens)
            flat = sample(scores, step, config, chance.to(decoder.device), limits, ends)
            texts = [flat[first : first + samples] for first in range(0, len(flat), samples)]
        for number, several in zip(part, texts, strict=True):
            found[number] = several
    return found


def _batches(rows: Sequence[Sequence[int]], decoder: GenerationEngine, config: GenerationConfig) -> Iterator[list[int]]:
    """Prompts of nearly one length, as many as there is room for: their numbers."""
    network: Any = decoder.config
    layers = network.decoder_layers or network.layers
    size = 2 * layers * network.inner * decoder.dtype.itemsize  # of a token
    copies = 1 if config.num_beams > 1 else config.samples
    part: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number])):
        tokens = copies * (len(rows[number]) + config.num_beams * config.max_new_tokens)
        if part and (len(part) + 1) * tokens * size > CACHE_BYTES[decoder.device.type]:
            yield part
            part = []
        part.append(number)
    if part:
        yield part


class CachedStep:
    """One more token on every way of every sequence: a step of a search."""

    def __init__(self, decoder: GenerationEngine, cache: KVCache | DecoderCache | RecurrentCache) -> None:
        self.decoder, self.cache = decoder, cache
        self._steps = 0

    @property
    def can_draft(self) -> bool:
        """Whether several tokens at once take hardly longer than one, and give the same; half precision rounds more."""
        return isinstance(self.cache, KVCache) and self.decoder.prepacked and self.decoder.dtype == torch.float32

    def rollback(self, count: int) -> None:
        assert isinstance(self.cache, KVCache)
        self.cache.rollback(count)

    def __call__(self, ids: Int[Tensor, "B W"], parents: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W V"]:
        hidden = self.decoder.trunk.step(ids, self.cache, parents)
        self._steps += 1
        if self.cache.beams > 1 and not self.cache.fixed and self._steps % PRUNE_EVERY == 0:
            self.cache.prune()
        return self.decoder.logits(hidden.flatten(0, 1)).view(*ids.shape, -1)


class CudaGraphStep:
    """A step that a GPU has recorded, since a token keeps it busy for less time than it takes to tell it what to do.

    The first step simply runs, so that every library sets itself up; the second is recorded and from then on replayed.
    What it gives is written over by the next.
    """

    def __init__(self, step: Step, shape: tuple[int, int], device: torch.device) -> None:
        self._step = step
        self._ids, self._parents = (torch.zeros(shape, dtype=torch.long, device=device) for _ in range(2))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: Any = None
        self._logits: Tensor | None = None

    def __call__(self, ids: Int[Tensor, "B W"], parents: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W V"]:
        if self._logits is None:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._logits = self._step(ids, parents)
            torch.cuda.current_stream().wait_stream(self._stream)
            return self._logits
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with capture(self._graph, stream=self._stream):
                self._logits = self._step(self._ids, None if parents is None else self._parents)
        self._ids.copy_(ids)
        if parents is not None:
            self._parents.copy_(parents)
        self._graph.replay()
        assert self._logits is not None
        return self._logits
