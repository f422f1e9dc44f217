"""Sampling and beam search: temperature, top-k, nucleus sampling (top-p). Works on logits, without network or text.

A strategy gets the logits after the prompts and a `step`, and returns texts for each prompt. The network is in the
step: given the next token of every beam, and the beam that each continues (its parent), it returns the logits of the
token after that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.errors import RecipeError
from bertsmith.files import short_repr
from bertsmith.random_bits import mix, uniform

Step = Callable[[Tensor, Tensor | None], Tensor]  # tokens [B, W] and parents [B, W] to logits [B, W, V]
Strategy = Callable[..., list[list[list[int]]]]  # logits, step, config, prompts, limits and stop_ids to texts

GENERATION = 6  # the purpose of these random numbers, as those in random_bits.py
CHUNK = 64  # logits of a chunk, of which first only the maximum is compared
CHUNKED_FROM = 1 << 20  # logits from which chunks are faster on a GPU: with fewer, eight kernel launches cost more
# The limits of the settings: the least of whole numbers (None: any), and beyond the others scores are no numbers.
INTEGERS = {"max_new_tokens": 1, "min_new_tokens": 0, "top_k": 0, "num_beams": 1, "samples": 1, "seed": None}
MIN_TEMPERATURE, MAX_TEMPERATURE, MIN_TOP_P, MAX_LENGTH_PENALTY = 1e-3, 1000, 1e-6, 10
CHECK_EVERY = 16  # tokens between two checks whether all have stopped: each would synchronise with the GPU


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """Settings of text generation. The defaults are nucleus sampling. Holtzman et al. 2019."""

    max_new_tokens: int = 40
    min_new_tokens: int = 0  # before a stop token is allowed
    temperature: float = 0.8  # logits are divided by it: below 1 likely tokens become likelier; 0: greedy decoding
    top_k: int = 50  # sample from the k likeliest tokens; 0: from all
    top_p: float = 0.95  # nucleus sampling: and of those from the likeliest with this share of the probability
    num_beams: int = 1  # beam width; above 1, beam search instead of sampling
    length_penalty: float = 1.0  # of beam search: log-likelihoods are divided by length ** length_penalty
    samples: int = 1  # continuations of each prompt; with beam search the best ones
    seed: int = 0  # of sampling

    @property
    def rows_per_prompt(self) -> int:
        """The rows of a prompt in the cache: one for each sample; the beams of a beam search share one."""
        return 1 if self.num_beams > 1 else self.samples

    def __post_init__(self) -> None:
        for name, minimum in INTEGERS.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool):
                raise RecipeError(name, f"is {short_repr(value)}", "Give a whole number")
            if minimum is not None and int(value) < minimum:
                raise RecipeError(name, f"is {value}", f"Give at least {minimum}")
        for name in ("temperature", "top_p", "length_penalty"):
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not isfinite(value):
                raise RecipeError(name, f"is {short_repr(value)}", "Give a number")
        if self.temperature < 0:
            raise RecipeError("temperature", f"is {self.temperature}", "Give at least 0")
        if 0 < self.temperature < MIN_TEMPERATURE:
            fact = f"is {self.temperature}, and logits are divided by it"
            raise RecipeError("temperature", fact, f"Give 0, which is greedy decoding, or at least {MIN_TEMPERATURE}")
        if self.temperature > MAX_TEMPERATURE:
            fact = f"is {self.temperature}, at which every token is as likely"
            raise RecipeError("temperature", fact, f"Give at most {MAX_TEMPERATURE}")
        if not 0 < self.top_p <= 1:
            raise RecipeError("top_p", f"is {self.top_p}", "Give a share above 0, at most 1")
        if self.top_p < MIN_TOP_P:
            raise RecipeError("top_p", f"is {self.top_p}, which leaves no token", "Give at least 0.000001")
        if abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            fact = f"is {self.length_penalty}, an exponent"
            raise RecipeError("length_penalty", fact, f"Give -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}")
        if self.min_new_tokens > self.max_new_tokens:
            fact = f"is {self.min_new_tokens}, and max_new_tokens {self.max_new_tokens}"
            raise RecipeError("min_new_tokens", fact, "Give at most as many")
        if self.num_beams > 1 and self.samples > self.num_beams:
            raise RecipeError("samples", f"is {self.samples}, of {self.num_beams} beams", "Take as many beams")
        if self.num_beams > 1 and self.temperature not in (0, GenerationConfig.temperature):
            fact = f"is {self.temperature}, and a beam search draws nothing"
            raise RecipeError("temperature", fact, "Leave it out, or set num_beams=1")
        if self.num_beams == 1 and self.length_penalty != GenerationConfig.length_penalty:
            fact = f"is {self.length_penalty}, of beam search alone"
            raise RecipeError("length_penalty", fact, "Set num_beams to 2 or more, or leave it out")


def draw_uniforms(rows: Sequence[Sequence[int]], config: GenerationConfig, count: int) -> Float[Tensor, "B M"]:
    """Random numbers in [0, 1) for each of `count` new tokens: a pure function of seed, prompt, sample and position.

    So other prompts of a batch do not change a text, and every device draws the same. Samples of a prompt are adjacent.
    """
    prompts = np.array([mix(config.seed, GENERATION, *row) for row in rows]).repeat(config.samples)
    samples = np.tile(np.arange(config.samples), len(rows))
    return torch.from_numpy(uniform(prompts[:, None], samples[:, None], np.arange(count)[None]))


def sample(
    logits: Float[Tensor, "B V"],
    step: Step,
    config: GenerationConfig,
    prompts: Sequence[Sequence[int]],
    limits: Int[Tensor, "P"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[list[int]]]:
    """Sampling or greedy decoding, token by token, up to a stop token, which is left out, or to the limit."""
    random = config.temperature > 0  # greedy decoding draws no random numbers
    max_new_tokens = min(config.max_new_tokens, int(limits.max()))
    uniforms = draw_uniforms(prompts, config, max_new_tokens) if random else torch.zeros(len(logits), max_new_tokens)
    uniforms, limits = uniforms.to(logits.device), limits.repeat_interleave(config.samples)
    generated: list[Tensor] = []
    running = torch.ones_like(limits, dtype=torch.bool)
    for position in range(max_new_tokens):
        if position < config.min_new_tokens:
            logits = logits.index_fill(1, stop_ids, -torch.inf)
        token = sample_token(logits, config, uniforms[:, position])
        generated.append(token)
        running &= ~torch.isin(token, stop_ids) & (limits > position + 1)
        if position + 1 == max_new_tokens or (_should_check(position, running) and not running.any()):
            break
        logits = step(token[:, None], None)[:, 0]
    rows, stops = torch.stack(generated, 1).tolist(), set(stop_ids.tolist())
    texts = [_truncate_at_stop(row[:limit], stops) for row, limit in zip(rows, limits.tolist(), strict=True)]
    return [texts[first : first + config.samples] for first in range(0, len(texts), config.samples)]


def sample_token(
    logits: Float[Tensor, "B V"], config: GenerationConfig, uniforms: Float[Tensor, "B"]
) -> Int[Tensor, "B"]:
    """One token for each row: sampled from the top-k and top-p tokens, or the likeliest."""
    if config.temperature == 0:
        return logits.max(-1).indices  # on a CPU three times as fast as argmax
    logits, ids = logits.float() / config.temperature, None
    if config.top_k:
        logits, ids = logits.topk(min(config.top_k, logits.shape[1]))
    elif config.top_p < 1:
        logits, ids = logits.sort(descending=True)
    probabilities = logits.softmax(-1)
    if config.top_p < 1:  # keep a token while the likelier ones have less than top_p together
        probabilities = probabilities.masked_fill(probabilities.cumsum(-1) - probabilities >= config.top_p, 0)
    cumulative = probabilities.double().cumsum(-1)
    drawn = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    return (drawn if ids is None else ids.gather(1, drawn))[:, 0]


def beam_search(
    logits: Float[Tensor, "P V"],
    step: Step,
    config: GenerationConfig,
    prompts: Sequence[Sequence[int]],
    limits: Int[Tensor, "P"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[list[int]]]:
    """The likeliest whole continuations of each prompt, the best first."""
    hypotheses = best_hypotheses(logits, step, config, limits, stop_ids)
    return [[text for text, _ in best] for best in hypotheses]


def best_hypotheses(
    logits: Float[Tensor, "P V"],
    step: Step,
    config: GenerationConfig,
    limits: Int[Tensor, "P"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[tuple[list[int], float]]]:
    """The likeliest whole continuations, the best first, each with its score. Wu et al. 2016, section 7.

    At each step the best partial hypotheses are continued. A sequence is done when no open hypothesis could become
    better than the finished ones, even if all its next tokens had probability 1.
    """
    sequences, vocabulary = logits.shape
    beams, max_new_tokens = config.num_beams, min(config.max_new_tokens, int(limits.max()))
    # Enough candidates for all beams to go on, even if the best ones all stop.
    candidates = min((1 + max(1, len(stop_ids))) * beams, beams * vocabulary)
    total = torch.full((sequences, beams), -torch.inf, device=logits.device)
    total[:, 0] = 0  # at first there is one hypothesis, the prompt
    best = torch.full_like(total, -torch.inf)
    open_rows = torch.zeros(sequences, beams, max_new_tokens, dtype=torch.long, device=logits.device)
    finished, lengths = open_rows, open_rows[..., 0]
    limits = limits.clamp(max=max_new_tokens)
    logits = logits[:, None].expand(-1, beams, -1)
    for position in range(max_new_tokens):
        forbidden = stop_ids if position < config.min_new_tokens else stop_ids[:0]
        values, parents, ids = _top_continuations(logits, total, candidates, forbidden)
        rows = _gather_beams(open_rows, parents)
        rows[:, :, position] = ids
        stopped = torch.isin(ids, stop_ids) | (limits <= position + 1)[:, None]
        # A hypothesis that stops must be among the best `beams`, or any unlikely stop would count.
        accepted = stopped & (torch.arange(candidates, device=ids.device) < beams)
        scores = (values / (position + 1) ** config.length_penalty).masked_fill(~accepted, -torch.inf)
        best, order = torch.cat((best, scores), 1).topk(beams)
        finished = _gather_beams(torch.cat((finished, rows), 1), order)
        lengths = torch.cat((lengths, torch.full_like(ids, position + 1)), 1).gather(1, order)
        total, order = values.masked_fill(stopped, -torch.inf).topk(beams)
        # Log-likelihoods are negative: with a positive length penalty the longest length gives the upper bound.
        length = limits if config.length_penalty > 0 else torch.full_like(limits, position + 1)
        upper_bound = total[:, 0] / length**config.length_penalty
        promising = upper_bound > best[:, config.samples - 1]
        if position + 1 == max_new_tokens or (_should_check(position, promising) and not promising.any()):
            break
        open_rows, parents, ids = _gather_beams(rows, order), parents.gather(1, order), ids.gather(1, order)
        logits = step(ids, parents)
    stops = set(stop_ids.tolist())
    sequences_found = zip(finished.tolist(), lengths.tolist(), best.tolist(), strict=True)
    return [
        [
            (_truncate_at_stop(row[:size], stops), score)
            for row, size, score in list(zip(*hypotheses, strict=True))[: config.samples]
            if score > -torch.inf  # a small vocabulary may not have that many continuations
        ]
        for hypotheses in sequences_found
    ]


def _top_continuations(
    logits: Float[Tensor, "B W V"], total: Float[Tensor, "B W"], count: int, forbidden_ids: Int[Tensor, "_"]
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The likeliest continuations of all beams: their log-likelihoods, parents and tokens."""
    logits = logits.float().log_softmax(-1)
    if len(forbidden_ids):
        logits = logits.index_fill(2, forbidden_ids, -torch.inf)
    each = min(count, logits.shape[2])  # first the top-k of each beam, so that totals are added to few values only
    values, ids = chunked_topk(logits, each) if logits.is_cuda and logits.numel() >= CHUNKED_FROM else logits.topk(each)
    values, order = (values + total[..., None]).flatten(1).topk(count)
    return values, order // each, ids.flatten(1).gather(1, order)


def chunked_topk(scores: Float[Tensor, "B W V"], count: int) -> tuple[Float[Tensor, "B W N"], Int[Tensor, "B W N"]]:
    """The same as `topk`, which on a GPU reads all scores about twenty times; this reads them once.

    A top score lies in a chunk whose maximum is among the top maxima.
    """
    size = scores.shape[2]
    if size <= count * CHUNK:
        return scores.topk(count)
    chunks = torch.unflatten(F.pad(scores, (0, -size % CHUNK), value=-torch.inf), 2, (-1, CHUNK))
    top_chunks = chunks.amax(3).topk(count, sorted=False).indices
    candidates = chunks.gather(2, top_chunks[..., None].expand(-1, -1, -1, CHUNK)).flatten(2)
    values, order = candidates.topk(count)
    ids = top_chunks.gather(2, order // CHUNK) * CHUNK + order % CHUNK
    return values, ids.clamp(max=size - 1)  # padding of the last chunk is minus infinity, as forbidden tokens are


def _gather_beams(rows: Int[Tensor, "B W M"], which: Int[Tensor, "B N"]) -> Int[Tensor, "B N M"]:
    return rows.gather(1, which[..., None].expand(-1, -1, rows.shape[2]))


def _should_check(position: int, like: Tensor) -> bool:
    return like.device.type == "cpu" or position % CHECK_EVERY == CHECK_EVERY - 1


def _truncate_at_stop(row: list[int], stop_ids: set[int]) -> list[int]:
    """A row up to its first stop token."""
    return row[: next((position for position, token in enumerate(row) if token in stop_ids), len(row))]
