"""The generation engine: greedy decoding, sampling and beam search with a KV cache, one token at a time."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.prompt_lookup import speculative_decode
from bertsmith.models.generation.search import GenerationConfig, Step, Strategy, beam_search, sample
from bertsmith.models.networks import EncoderDecoderNetwork, Network
from bertsmith.models.prepacked import PrepackedLinear, can_prepack, prepack
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.transformer import Transformer
from bertsmith.nn.cache import Cache
from bertsmith.nn.cuda_graph import capture
from bertsmith.nn.heads import ALIGNMENT
from bertsmith.nn.kv_cache import KVCache

DecodingPrecision = Literal["float32", "bfloat16"]
CACHE_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of the KV cache of one batch


class GenerationEngine:
    """A language model ready to generate, with its weights in the layout that is fastest on the device.

    A decoder continues its prompt; an encoder-decoder encodes its input and generates from the token
    `decoder_start_id`. `forbidden_ids`, such as padding, are never generated.
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
        self.cuda_graph = self.device.type == "cuda"  # whether steps are captured
        self.prepacked = prepack_weights and self.device.type == "cpu" and can_prepack(dtype)
        self.forbidden_ids = torch.tensor(forbidden_ids, dtype=torch.long, device=self.device)
        self.trunk: Any  # every kind of network has another type of cache
        table, self.logit_scale = _output_table(trunk)
        table, bias = table.detach().to(dtype), trunk.bias if isinstance(trunk, Recurrent) else None
        padding = -len(table) % ALIGNMENT if self.device.type == "cuda" else 0  # tensor cores need aligned sizes
        table = F.pad(table, (0, 0, 0, padding)) if padding else table
        lm_head = nn.Linear(table.shape[1], table.shape[0], bias=bias is not None, device="meta")
        lm_head.weight = nn.Parameter(table, requires_grad=False)
        if bias is not None:
            lm_head.bias = nn.Parameter(F.pad(bias.detach().to(dtype), (0, padding)), requires_grad=False)
        self.lm_head: nn.Module | PrepackedLinear = lm_head
        if self.device.type == "cpu" and isinstance(trunk, Transformer | EncoderDecoder):
            self.trunk = prepack_trunk(trunk, dtype, reorder=prepack_weights)
            self.lm_head = PrepackedLinear(lm_head, dtype, reorder=prepack_weights)
        elif trunk.training or dtype != trunk.embedding.weight.dtype:
            self.trunk = copy.deepcopy(trunk).to(dtype).eval()
        else:
            self.trunk = trunk

    def prefill(self, prompts: Sequence[Sequence[int]], config: GenerationConfig) -> tuple[Float[Tensor, "_ V"], Step]:
        """Read prompts into a new cache, with their beams or samples: the logits of the next token, and the step."""
        tokens, trunk, beams = Tokens.from_rows(prompts).to(self.device), self.trunk, config.num_beams
        max_new_tokens = min(config.max_new_tokens, max(map(self.remaining, prompts)))
        capacity = (1 if self.is_encoder_decoder else tokens.max_length) + beams * max_new_tokens
        capacity += -capacity % ALIGNMENT if self.cuda_graph else 0
        cache = trunk.cache(len(prompts), capacity, beams, self.dtype)
        if isinstance(trunk, EncoderDecoderNetwork):
            start = Tokens.from_rows([[self.decoder_start_id]] * len(prompts)).to(self.device)
            hidden = trunk.prefill(tokens, cache, start)
        else:
            hidden = trunk.prefill(tokens, cache)
        logits, samples = self.logits(hidden), config.rows_per_prompt
        if samples > 1:
            cache.repeat_interleave(samples)
            logits = logits.repeat_interleave(samples, 0)
        step = CachedStep(self, cache)
        if not self.cuda_graph:
            return logits, step
        cache.fixed = True
        return logits, CudaGraphStep(step, (len(logits), beams), self.device)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether it generates a separate text, rather than a continuation of the prompt."""
        return self.config.decoder_layers > 0

    def remaining(self, row: Sequence[int]) -> int:
        """The number of tokens that can be generated before the maximum length."""
        return self.config.max_length - (1 if self.is_encoder_decoder else len(row))

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token; minus infinity for forbidden ones."""
        hidden = hidden.to(self.dtype)
        hidden = hidden if self.logit_scale == 1 else hidden * self.logit_scale
        logits: Tensor = self.lm_head(hidden)[:, : self.config.vocabulary]
        return logits.index_fill_(1, self.forbidden_ids, -torch.inf) if len(self.forbidden_ids) else logits


def _output_table(trunk: Network) -> tuple[Float[Tensor, "V D"], float]:
    """The weight of the output layer, and the scale of the hidden vectors before it."""
    if isinstance(trunk, Recurrent):
        return trunk.output_weights[0], 1.0
    if not isinstance(trunk, EncoderDecoderNetwork):
        return trunk.embedding.weight, 1.0
    return (trunk.embedding.weight, trunk.logit_scale) if trunk.lm_head is None else (trunk.lm_head.weight, 1.0)


def prepack_trunk(
    trunk: Transformer | EncoderDecoder, dtype: torch.dtype, *, reorder: bool
) -> Transformer | EncoderDecoder:
    """A copy with prepacked layers; of an encoder-decoder both halves."""
    if isinstance(trunk, Transformer):
        return prepack(trunk, dtype, reorder=reorder)
    light = copy.copy(trunk)
    halves = {name: prepack(getattr(trunk, name), dtype, reorder=reorder) for name in ("encoder", "decoder")}
    light._modules = {**trunk._modules, **halves}
    return light


@torch.inference_mode()
def generate(
    engine: GenerationEngine, prompts: Sequence[Sequence[int]], config: GenerationConfig, stop_ids: Sequence[int] = ()
) -> list[list[list[int]]]:
    """The generated tokens of each prompt, as many times as there are samples."""
    generated: list[list[list[int]]] = [[] for _ in prompts]
    stops = torch.tensor(stop_ids, dtype=torch.long, device=engine.device)
    for batch in _batches(prompts, engine, config):
        rows = [prompts[number] for number in batch]
        limits = torch.tensor([engine.remaining(row) for row in rows], device=engine.device)
        logits, step = engine.prefill(rows, config)
        strategy = _strategy(config, step, len(rows))
        texts = strategy(logits, step, config, rows, limits, stops)
        for number, samples in zip(batch, texts, strict=True):
            generated[number] = samples
    return generated


def _strategy(config: GenerationConfig, step: Step, prompts: int) -> Strategy:
    """How the next tokens are chosen: prompt lookup is greedy decoding, where it is faster."""
    if config.num_beams > 1:
        return beam_search
    alone = prompts == config.samples == 1 and config.temperature == 0
    return speculative_decode if alone and isinstance(step, CachedStep) and step.can_draft else sample


def _batches(rows: Sequence[Sequence[int]], engine: GenerationEngine, config: GenerationConfig) -> Iterator[list[int]]:
    """Batches of prompts (their numbers) of similar length, whose caches fit into CACHE_BYTES."""
    network: Any = engine.config
    layers = network.decoder_layers or network.layers
    token_bytes = 2 * layers * network.inner * engine.dtype.itemsize
    batch: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number])):
        tokens = config.rows_per_prompt * (len(rows[number]) + config.num_beams * config.max_new_tokens)
        if batch and (len(batch) + 1) * tokens * token_bytes > CACHE_BYTES[engine.device.type]:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


class CachedStep:
    """A step of generation: reads one more token of every beam into the cache, and gives the next logits."""

    def __init__(self, engine: GenerationEngine, cache: Cache) -> None:
        self.engine, self.cache = engine, cache

    @property
    def can_draft(self) -> bool:
        """Whether several tokens at once cost hardly more than one, with equal results: not in half precision."""
        return isinstance(self.cache, KVCache) and self.engine.prepacked and self.engine.dtype == torch.float32

    def rollback(self, count: int) -> None:
        assert isinstance(self.cache, KVCache)
        self.cache.rollback(count)

    def __call__(self, ids: Int[Tensor, "B W"], parents: Int[Tensor, "B W"] | None) -> Float[Tensor, "B W V"]:
        if parents is not None:
            self.cache.reorder(parents)
        hidden = self.engine.trunk.step(ids, self.cache)
        return self.engine.logits(hidden.flatten(0, 1)).view(*ids.shape, -1)


class CudaGraphStep:
    """A step captured as a CUDA graph, since launching its kernels takes longer than running them on one token.

    The first step runs normally, so that every library initialises; the second is captured, and from then on replayed.
    Each step overwrites the logits of the last one.
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
