"""Writing the weights of a network under the names, and in the forms, that they have in transformers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.models.hf.convert import WeightRule


def write_weights(
    path: Path,
    state_dict: Mapping[str, Tensor],
    expected: Sequence[tuple[WeightRule, tuple[int, ...]]],
    theirs: Callable[[WeightRule, str, Tensor], tuple[str, Tensor]],
) -> str:
    """Write model.safetensors, if every weight is there in the shape that its rule expects.

    `theirs` gives the name and the form that a weight has in transformers. Returns the precision, for config.json.
    """
    if different := state_dict.keys() ^ {rule.ours for rule, _ in expected}:
        fact = "has no name in transformers" if min(different) in state_dict else "is missing"
        raise FolderError(path.parent, f"the weight '{min(different)}' {fact}")
    tensors = {}
    for rule, shape in expected:
        weight = state_dict[rule.ours].detach().cpu()
        if weight.shape != shape:
            fact = f"the weight '{rule.ours}' has shape {list(weight.shape)}, not {list(shape)}"
            raise FolderError(path.parent, fact)
        for name, part in zip(rule.theirs, weight.chunk(len(rule.theirs)), strict=True):
            full_name, form = theirs(rule, name, part)
            tensors[full_name] = form.clone(
                memory_format=torch.contiguous_format
            )  # safetensors wants memory of its own
    files.write(path, safetensors.torch.save(tensors, {"format": "pt"}))
    return str(next(iter(state_dict.values())).dtype).removeprefix("torch.")
