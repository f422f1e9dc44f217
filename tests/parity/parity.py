"""The one assertion of parity: the same weights give the same numbers here and in transformers."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, BertConfig, BertForPreTraining

from bertsmith.data.batch import Tokens
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.recorded import record
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import MaskedLMHead, Pooler, SentencePairHead
from bertsmith.nn.pooling import first

MOST = 1e-5  # the largest difference allowed anywhere


class Whole(nn.Module):
    """A trunk with BERT's own heads."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.trunk = Transformer(config)
        self.mlm_head = MaskedLMHead(config.width, config.vocabulary, config.activation, config.norm_eps)
        self.pooler = Pooler(config.width)
        self.sentence_pair = SentencePairHead(config.width)


def assert_parity(config: TransformerConfig, folder: Path) -> dict[str, float]:
    """Random weights of transformers, opened here and written back, give the same numbers all the way.

    Returns the largest differences seen.
    """
    reference = reference_of(config)
    reference.save_pretrained(folder / "theirs")
    opened = folders.read(folder / "theirs")
    assert opened.config == config
    assert opened.parts == {"mlm_head", "pooler", "sentence_pair"}
    ours = Whole(opened.config).eval()
    ours.load_state_dict(opened.state_dict)
    assert count(ours) == count(reference)
    rows, segments = batch(config)
    with torch.no_grad():
        theirs = answers(reference, rows, segments)
        differences = compare(ours, Tokens.from_rows(rows, segments), theirs)
        folders.write(folder / "ours", ours.trunk.config, ours.state_dict())
        for kind, heads in (
            (AutoModelForPreTraining, ("masked", "next")),
            (AutoModelForMaskedLM, ("masked",)),
        ):
            back = answers(kind.from_pretrained(folder / "ours", attn_implementation="eager"), rows, segments)
            differences[kind.__name__] = max(difference(back[head], theirs[head]) for head in heads)
    assert max(differences.values()) <= MOST, differences
    return differences


def reference_of(config: TransformerConfig) -> BertForPreTraining:
    """A random model of transformers in which no norm and no bias is trivial."""
    words = convert.to_config_json(config, ("mlm_head", "pooler", "sentence_pair"))
    torch.manual_seed(0)
    model = BertForPreTraining(BertConfig(**words, attn_implementation="eager")).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(float(name.endswith("LayerNorm.weight")), 0.1)
    return model


def batch(config: TransformerConfig) -> tuple[list[list[int]], list[list[int]]]:
    """Ragged rows, from one token to as many as fit, in two segments."""
    dice = torch.Generator().manual_seed(1)
    lengths = [5, 1, min(config.max_length, 60), 17, 17, 44]
    rows = [torch.randint(0, config.vocabulary, (length,), generator=dice).tolist() for length in lengths]
    return rows, [[int(place >= len(row) // 2) for place in range(len(row))] for row in rows]


def answers(model: Any, rows: list[list[int]], segments: list[list[int]]) -> dict[str, list[Tensor]]:
    """What transformers says about padded rows, with the padding taken off again."""

    def padded(lists: list[list[int]]) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.tensor(one) for one in lists], batch_first=True)

    said = model(
        input_ids=padded(rows),
        attention_mask=padded([[1] * len(row) for row in rows]),
        token_type_ids=padded(segments),
        output_hidden_states=True,
        output_attentions=True,
    )

    def cut(rows_of: Tensor) -> list[Tensor]:
        return [one[:size] for one, size in zip(rows_of, sizes, strict=True)]

    sizes = [len(row) for row in rows]
    squares = [one[:, :size, :size] for layer in said.attentions for one, size in zip(layer, sizes, strict=True)]
    found = {"states": [torch.cat(cut(state)) for state in said.hidden_states], "attention": squares}
    if hasattr(said, "seq_relationship_logits"):
        return {**found, "masked": cut(said.prediction_logits), "next": [said.seq_relationship_logits]}
    return {**found, "masked": cut(said.logits)}


def compare(ours: Whole, tokens: Tokens, theirs: dict[str, list[Tensor]]) -> dict[str, float]:
    """The largest difference of each kind of answer."""
    hidden = ours.trunk(tokens)
    weights_of_all = [weights for layer in record(ours.trunk, tokens).attention for weights in layer]
    guesses = ours.mlm_head(hidden, ours.trunk.embedding.weight)
    return {
        "grouped": difference(ours.trunk.hidden_states(tokens, "grouped"), theirs["states"]),
        "eager": difference(ours.trunk.hidden_states(tokens, "eager"), theirs["states"]),
        "attention": difference(weights_of_all, theirs["attention"]),
        "masked": difference([guesses], [torch.cat(theirs["masked"])]),
        "next": difference([ours.sentence_pair(ours.pooler(first(hidden, tokens.bounds)))], theirs["next"]),
    }


def difference(first: list[Tensor], second: list[Tensor]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(first, second, strict=True))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
