"""A new masked LM head for a network that was published without one, such as a sentence encoder.

The head is fitted while the network is frozen, and only then is the network trained: gradients of a random head would
first destroy what the network knows (Kumar et al. 2022). It begins as word frequency: its bias is the logarithm of the
frequency of each token, and its transform adds little.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.inference import masked_words
from bertsmith.inference.model import Model
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.fertility import token_counts

LEARNING_RATE = 3e-3  # of the head alone
SMALL_GAIN = 0.1  # of the head's norm at first, so that its logits begin near word frequency
MASK_RATE = 0.4  # of words: more than in training, since a pass of the network is what costs time here
BATCH_TARGETS = 256
CHUNK_TEXTS = 32  # between two looks at the clock
MAX_EPOCHS, MAX_STEPS = 10, 400  # over the hidden vectors


def fit_head(model: Model, texts: Sequence[str], seconds: float) -> int:
    """Fit the head of a masked LM to a frozen network for some seconds; returns the number of steps.

    Half of the time is for the hidden vectors of masked words, which are computed once, and half for the head.
    """
    objective, tokenizer = model.objective, model.tokenizer
    assert isinstance(objective, MaskedLM)
    head, table, began = objective.mlm_head, objective.trunk.embedding.weight.detach(), time.monotonic()
    frequencies = torch.ones(len(table))
    frequencies[: tokenizer.vocabulary] += torch.from_numpy(token_counts(tokenizer, texts)).float()
    initialise(head.to("cpu"), 0)
    with torch.no_grad():
        head.bias.copy_(torch.log(frequencies / frequencies.sum()))
        head.norm.weight.fill_(SMALL_GAIN)
    head.to(model.device)
    hidden, targets = _hidden_vectors(model, texts, began + seconds / 2)
    optimizer = torch.optim.AdamW(head.parameters(), LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    last = min(MAX_STEPS, MAX_EPOCHS * math.ceil(len(targets) / BATCH_TARGETS))
    middle, steps, progress = time.monotonic(), 0, 0.0
    generator = torch.Generator().manual_seed(0)
    while progress < 1:
        some = torch.randint(len(targets), (BATCH_TARGETS,), generator=generator).to(model.device)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - progress)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(head(hidden[some], table), targets[some]))
        optimizer.step()
        steps += 1
        progress = max((time.monotonic() - middle) / (seconds / 2), steps / last)
    return steps


@torch.no_grad()
def _hidden_vectors(model: Model, texts: Sequence[str], end: float) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N"]]:
    """The hidden vectors of masked words and the true tokens, of as many texts as there is time for."""
    hidden, targets = list[Tensor](), list[Tensor]()
    model.objective.eval()
    for start in range(0, len(texts), CHUNK_TEXTS):
        masked = masked_words.mask_words(model.tokenizer, texts[start : start + CHUNK_TEXTS], 1, MASK_RATE)
        for _, batch in masked_words.batches(masked):
            there = batch.to(model.device)
            hidden.append(model.objective.trunk(there.tokens, selected=there.target_positions))
            targets.append(there.targets)
        if time.monotonic() > end:
            break
    return torch.cat(hidden), torch.cat(targets)


def write_folder(model: Model, path: Path) -> None:
    """Write the model with its new head as a folder, from which the run starts."""
    config, state = model.objective.trunk.config, model.objective.state_dict()
    kept = {"trunk", *layout_of(config).pretrained}
    with folders.atomic_folder(path) as folder:
        named = {name: weight for name, weight in state.items() if name.partition(".")[0] in kept}
        folders.write(folder, config, named, model.tokenizer.special_ids(layout_of(config).special_tokens))
        model.tokenizer.save(folder, max_length=config.max_length)
