"""Texts written about others: with a cache as without, alone as in a crowd, and as transformers writes them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from tasks.small import stirred

from bertsmith.data.batch import Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5, T5_V1_1
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf import convert
from bertsmith.models.transformer_config import TransformerConfig

SIZES: dict[str, Any] = {
    "vocabulary": 61,
    "width": 32,
    "layers": 2,
    "decoder_layers": 3,
    "heads": 4,
    "feed_forward": 48,
}
SIZES |= {"buckets": 8, "max_distance": 20, "max_length": 48}
CONFIGS = [replace(T5, **SIZES), replace(T5_V1_1, **SIZES, head_width=6)]
TEXTS = [[5, 9, 33, 7, 1], [40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 1], [8, 1], [30, 20, 10, 1]]
STOP = 1
FORMS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 3},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "samples": 2},
    {"num_beams": 3},
]


def network(config: TransformerConfig) -> EncoderDecoder:
    made: EncoderDecoder = stirred(EncoderDecoder(config))
    with torch.no_grad():
        for weight in made.parameters():  # large enough for texts to differ
            weight.mul_(3 if weight.ndim > 1 else 1)
    return made.eval()


class Uncached(GenerationEngine):
    """The twin that reads everything anew at every token."""

    def prefill(self, rows: Any, config: GenerationConfig) -> Any:
        trunk, ways = self.trunk, config.num_beams
        assert isinstance(trunk, EncoderDecoder)
        texts = [list(row) for row in rows for _ in range(config.rows_per_prompt)]
        past = [[[self.decoder_start_id] for _ in range(ways)] for _ in texts]

        def now() -> torch.Tensor:
            read = Tokens.from_rows([text for text in texts for _ in range(ways)])
            flat = [way for each in past for way in each]
            hidden = trunk(
                read, Tokens.from_rows(flat), "eager", selected=torch.tensor([len(way) for way in flat]).cumsum(0) - 1
            )
            return self.logits(hidden).view(len(texts), ways, -1)

        def step(ids: torch.Tensor, came: torch.Tensor | None) -> torch.Tensor:
            for row, each in enumerate(past):
                order = range(ways) if came is None else came[row].tolist()
                past[row] = [[*each[way], int(ids[row, number])] for number, way in enumerate(order)]
            return now()

        return now()[:, 0], step


@pytest.mark.exhaustive(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("form", FORMS)
def test_with_a_cache_the_same_is_written_as_without(config: TransformerConfig, form: dict[str, Any]) -> None:
    made = network(config)
    how = GenerationConfig(max_new_tokens=14, **form)
    kept = generate(GenerationEngine(made, forbidden_ids=[0]), TEXTS, how, [STOP])
    anew = generate(Uncached(made, forbidden_ids=[0]), TEXTS, how, [STOP])
    assert kept == anew
    assert len({tuple(text) for several in kept for text in several}) > 2


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_neighbours_do_not_change_what_is_written(form: dict[str, Any]) -> None:
    decoder = GenerationEngine(network(CONFIGS[0]), forbidden_ids=[0])
    how = GenerationConfig(max_new_tokens=10, **form)
    together = generate(decoder, TEXTS, how, [STOP])
    assert together == [generate(decoder, [text], how, [STOP])[0] for text in TEXTS]


@pytest.mark.parametrize("beams", [1, 4])
def test_transformers_writes_the_same(beams: int) -> None:
    config = replace(CONFIGS[0], decoder_layers=2)  # its cache knows no decoder that is deeper than the encoder
    reference = transformers.T5ForConditionalGeneration(transformers.T5Config(**convert.to_config_json(config, ())))
    reference = stirred(reference).eval()
    made = EncoderDecoder(config).eval()
    rules = {rule.ours: rule.theirs for rule in convert.weight_rules(config, ())}
    theirs = reference.state_dict()
    made.load_state_dict(
        {name: torch.cat([theirs[one] for one in rules[f"trunk.{name}"]]) for name in made.state_dict()}
    )
    how = GenerationConfig(max_new_tokens=12, **({"temperature": 0} if beams == 1 else {"num_beams": beams}))
    written = generate(GenerationEngine(made), TEXTS, how, [STOP])
    for text, (found, *_) in zip(TEXTS, written, strict=True):
        true = reference.generate(
            torch.tensor([text]),
            max_new_tokens=12,
            num_beams=beams,
            do_sample=False,
            early_stopping="never" if beams > 1 else False,
            decoder_start_token_id=0,
            eos_token_id=STOP,
            pad_token_id=0,
        )
        row = true[0, 1:].tolist()
        assert found == row[: row.index(STOP) if STOP in row else len(row)]
