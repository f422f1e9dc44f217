"""Sampling and beam search: temperature, top-k, nucleus sampling (top-p). Knows logits, and no network and no text.

A network is a `step`: it is given one more token on every way of every sequence, and, where beams have been given up
for branches of others, the way that each goes on with; it gives the scores of all tokens that may come next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.errors import RecipeError
from bertsmith.random_bits import mix, uniform

Step = Callable[[Tensor, Tensor | None], Tensor]  # tokens [B, W] and ways [B, W] to scores [B, W, V]

GENERATION = 6  # what chance is for, as the purposes in random_bits.py
CHUNK = 64  # scores of which at first only the highest is looked at
CHUNKED_FROM = (
    1 << 20
)  # scores from which on a GPU looks by chunks: with fewer, naming eight kernels for one takes longer
CHECK_EVERY = 16  # tokens between two looks whether all have stopped: a GPU is not to be waited for at each


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How to choose. As it stands: drawn from what is likely, as Holtzman et al. 2019 found to read best."""

    max_new_tokens: int = 40  # new tokens
    min_new_tokens: int = 0  # of them, before one may stop
    temperature: float = 0.8  # scores are divided by it: below 1 what is likely gets likelier; 0: only the likeliest
    top_k: int = 50  # likeliest tokens that are drawn from; 0: all
    top_p: float = 0.95  # and of those the likeliest that have this share between them
    num_beams: int = 1  # with more than one nothing is drawn: the likeliest whole is looked for
    length_penalty: float = 1.0  # of beam search: log-likelihoods are divided by length ** length_penalty
    samples: int = 1  # continuations of each prompt; of beams the best so many
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("max_new_tokens", 1),
            ("min_new_tokens", 0),
            ("temperature", 0),
            ("top_k", 0),
            ("num_beams", 1),
            ("samples", 1),
        ):
            if getattr(self, name) < least:
                raise RecipeError(name, f"is {getattr(self, name)}", f"Give at least {least}")
        if not 0 < self.top_p <= 1:
            raise RecipeError("top_p", f"is {self.top_p}", "Give a share above 0, at most 1")
        if self.num_beams > 1 and self.samples > self.num_beams:
            raise RecipeError("samples", f"is {self.samples}, of {self.num_beams} beams", "Take as many beams")


def draw_uniforms(rows: Sequence[Sequence[int]], config: GenerationConfig) -> Float[Tensor, "B M"]:
    """Chance: a number from 0 to 1 for each token to come, that depends on nothing but seed, prompt, sample and place.

    So neighbours do not change a text, and every device draws the same. Samples of a prompt follow each other.
    """
    prompts = np.array([mix(config.seed, GENERATION, *row) for row in rows]).repeat(config.samples)
    samples = np.tile(np.arange(config.samples), len(rows))
    return torch.from_numpy(uniform(prompts[:, None], samples[:, None], np.arange(config.max_new_tokens)[None]))


def sample(
    logits: Float[Tensor, "B V"],
    step: Step,
    config: GenerationConfig,
    uniforms: Float[Tensor, "B M"],
    limits: Int[Tensor, "B"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[int]]:
    """Token after token, drawn or the likeliest; up to one that stops, which is left out, or to the limit."""
    written: list[Tensor] = []
    running = torch.ones_like(limits, dtype=torch.bool)
    most = min(config.max_new_tokens, int(limits.max()))
    for place in range(most):
        if place < config.min_new_tokens:
            logits = logits.index_fill(1, stop_ids, -torch.inf)
        chosen = sample_token(logits, config, uniforms[:, place])
        written.append(chosen)
        running &= ~torch.isin(chosen, stop_ids) & (limits > place + 1)
        if place + 1 == most or (_should_check(place, running) and not running.any()):
            break
        logits = step(chosen[:, None], None)[:, 0]
    rows, ends = torch.stack(written, 1).tolist(), set(stop_ids.tolist())
    return [_truncate_at_stop(row[:limit], ends) for row, limit in zip(rows, limits.tolist(), strict=True)]


def sample_token(
    logits: Float[Tensor, "B V"], config: GenerationConfig, uniforms: Float[Tensor, "B"]
) -> Int[Tensor, "B"]:
    """One token for each row: by its chance among the likely ones, or the likeliest."""
    if config.temperature == 0:
        return logits.max(-1).indices  # on a CPU three times as fast as argmax
    logits, ids = logits.float() / config.temperature, None
    if config.top_k:
        logits, ids = logits.topk(min(config.top_k, logits.shape[1]))
    elif config.top_p < 1:
        logits, ids = logits.sort(descending=True)
    shares = logits.softmax(-1)
    if config.top_p < 1:  # a token stays as long as those before it have not got the share between them
        shares = shares.masked_fill(shares.cumsum(-1) - shares >= config.top_p, 0)
    heights = shares.double().cumsum(-1)
    found = torch.searchsorted(heights, uniforms[:, None] * heights[:, -1:], right=True)
    return (found if ids is None else ids.gather(1, found))[:, 0]


def beam_search(
    logits: Float[Tensor, "B V"],
    step: Step,
    config: GenerationConfig,
    limits: Int[Tensor, "B"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[tuple[list[int], float]]]:
    """The likeliest continuations as wholes, the best first, each with its score. Wu et al. 2016, section 7.

    At each token the best few beginnings are gone on with, whichever they come from. It is over when none of them could
    become better than those that have been found, even if all its tokens to come were certain.
    """
    sequences, vocabulary = logits.shape
    beams, most = config.num_beams, min(config.max_new_tokens, int(limits.max()))
    enough = min((1 + max(1, len(stop_ids))) * beams, beams * vocabulary)  # though all the best stop, as many can go on
    total = torch.full((sequences, beams), -torch.inf, device=logits.device)
    total[:, 0] = 0  # there is one beginning, the prompt
    best = torch.full_like(total, -torch.inf)
    written = torch.zeros(sequences, beams, most, dtype=torch.long, device=logits.device)
    ended, lengths = written, written[..., 0]
    limits = limits.clamp(max=most)
    logits = logits[:, None].expand(-1, beams, -1)
    for place in range(most):
        values, came, ids = _top_continuations(
            logits, total, enough, stop_ids if place < config.min_new_tokens else stop_ids[:0]
        )
        grown = _gather_beams(written, came)
        grown[:, :, place] = ids
        stopped = torch.isin(ids, stop_ids) | (limits <= place + 1)[:, None]
        # What stops must be among the best, as what goes on must: else any stop, however unlikely, would count.
        fits = stopped & (torch.arange(enough, device=ids.device) < beams)
        normed = (values / (place + 1) ** config.length_penalty).masked_fill(~fits, -torch.inf)
        best, kept = torch.cat((best, normed), 1).topk(beams)
        ended = _gather_beams(torch.cat((ended, grown), 1), kept)
        lengths = torch.cat((lengths, torch.full_like(ids, place + 1)), 1).gather(1, kept)
        total, kept = values.masked_fill(stopped, -torch.inf).topk(beams)
        # Log-likelihoods are below nought: divided by more they are better.
        hope = (
            total[:, 0]
            / (limits if config.length_penalty > 0 else torch.full_like(limits, place + 1)) ** config.length_penalty
        )
        hopeful = hope > best[:, config.samples - 1]
        if place + 1 == most or (_should_check(place, hopeful) and not hopeful.any()):
            break
        written, came, ids = _gather_beams(grown, kept), came.gather(1, kept), ids.gather(1, kept)
        logits = step(ids, came)
    ends = set(stop_ids.tolist())
    found = zip(ended.tolist(), lengths.tolist(), best.tolist(), strict=True)
    return [
        [
            (_truncate_at_stop(row[:length], ends), score)
            for row, length, score in list(zip(*one, strict=True))[: config.samples]
            if score > -torch.inf  # of a small vocabulary there may not be so many
        ]
        for one in found
    ]


def _top_continuations(
    logits: Float[Tensor, "B W V"], total: Float[Tensor, "B W"], count: int, forbidden_ids: Int[Tensor, "_"]
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"], Int[Tensor, "B N"]]:
    """Of all ways to go on the likeliest: their log-likelihoods, the ways they come from, and their tokens."""
    logits = logits.float().log_softmax(-1)
    if len(forbidden_ids):
        logits = logits.index_fill(2, forbidden_ids, -torch.inf)
    each = min(count, logits.shape[2])  # of each way by itself first: so the sums of the others are not needed
    values, ids = chunked_topk(logits, each) if logits.is_cuda and logits.numel() >= CHUNKED_FROM else logits.topk(each)
    values, found = (values + total[..., None]).flatten(1).topk(count)
    return values, found // each, ids.flatten(1).gather(1, found)


def chunked_topk(scores: Float[Tensor, "B W V"], count: int) -> tuple[Float[Tensor, "B W N"], Int[Tensor, "B W N"]]:
    """What `topk` finds, which on a GPU reads all scores some twenty times; here they are read once.

    A score among the highest stands in a chunk whose own highest is among those of all chunks.
    """
    size = scores.shape[2]
    if size <= count * CHUNK:
        return scores.topk(count)
    chunks = torch.unflatten(F.pad(scores, (0, -size % CHUNK), value=-torch.inf), 2, (-1, CHUNK))
    which = chunks.amax(3).topk(count, sorted=False).indices
    held = chunks.gather(2, which[..., None].expand(-1, -1, -1, CHUNK)).flatten(2)
    values, found = held.topk(count)
    ids = which.gather(2, found // CHUNK) * CHUNK + found % CHUNK
    return values, ids.clamp(max=size - 1)  # what only fills the last chunk is as unlikely as what must not be written


def _gather_beams(rows: Int[Tensor, "B W M"], which: Int[Tensor, "B N"]) -> Int[Tensor, "B N M"]:
    return rows.gather(1, which[..., None].expand(-1, -1, rows.shape[2]))


def _should_check(position: int, like: Tensor) -> bool:
    return like.device.type == "cpu" or position % CHECK_EVERY == CHECK_EVERY - 1


def _truncate_at_stop(row: list[int], stop_ids: set[int]) -> list[int]:
    """A row up to the first token that stops."""
    return row[: next((place for place, token in enumerate(row) if token in stop_ids), len(row))]
