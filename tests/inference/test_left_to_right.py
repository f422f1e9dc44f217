"""Likelihood from left to right: exact, in one reading, alone and in a crowd."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError
from bertsmith.inference.likelihood import score, windows
from bertsmith.inference.minimal_pairs import MinimalPair, evaluate
from bertsmith.models.family import GPT2
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXTS = ["the cat sees the dog .", "a bird", "", "the king wants a fishmarket in the citygarden .", "a bird"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TEXTS * 3, TokenizerConfig(kind="bpe", vocabulary=290, min_frequency=1))


def model(tokenizer: Tokenizer, length: int = 64) -> CausalLM:
    sizes = {"vocabulary": tokenizer.vocabulary, "width": 16, "layers": 2, "heads": 2, "feed_forward": 64}
    shape: TransformerConfig = replace(GPT2, **sizes, max_length=length)
    torch.manual_seed(0)
    made = CausalLM(Transformer(shape), CausalLM.Config())
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1) if weight.ndim == 1 else weight.normal_(std=0.3)
    return made


def by_hand(made: CausalLM, start: int, ids: list[int]) -> list[float]:
    """A reading for every piece."""
    found = []
    with torch.no_grad():
        for place, piece in enumerate(ids):
            hidden = made.trunk(Tokens.from_rows([[start, *ids[:place]]]), "eager")
            found.append(float(F.log_softmax(made.logits(hidden[-1:]), -1)[0, piece]))
    return found


def test_each_piece_is_guessed_from_the_start_and_the_pieces_before_it(tokenizer: Tokenizer) -> None:
    made = model(tokenizer).eval()
    scored = score(made, tokenizer, TEXTS)
    assert [one.text for one in scored] == TEXTS
    for one, ids in zip(scored, tokenizer.encode(TEXTS), strict=True):
        assert one.token_log_probabilities == pytest.approx(by_hand(made, tokenizer.start_id, ids), rel=1e-4, abs=1e-5)
        assert one.log_likelihood == pytest.approx(math.fsum(one.token_log_probabilities))
    assert (scored[2].log_likelihood, scored[2].tokens) == (0.0, 0)
    assert scored[1] == scored[4]


@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_the_others_and_the_size_of_a_pass_change_nothing(budget: int, tokenizer: Tokenizer) -> None:
    made = model(tokenizer).train()
    crowd = score(made, tokenizer, TEXTS, batch_tokens=budget)
    assert made.training
    for text, one in zip(TEXTS, crowd, strict=True):
        [alone] = score(made, tokenizer, [text], pll_form="original")
        assert alone.token_log_probabilities == pytest.approx(one.token_log_probabilities, rel=1e-4, abs=1e-5)
    assert score(made, tokenizer, []) == []


def test_a_text_as_long_as_the_model_is_read_whole_and_a_longer_one_in_windows(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(TEXTS[:1])
    made = model(tokenizer, len(ids)).eval()
    [whole] = score(made, tokenizer, TEXTS[:1])
    assert whole.token_log_probabilities == pytest.approx(by_hand(made, tokenizer.start_id, ids), rel=1e-4, abs=1e-5)
    short = model(tokenizer, len(ids) - 1).eval()
    [cut] = score(short, tokenizer, TEXTS[:1])
    parts = windows(ids, tokenizer.continuation_mask, len(ids) - 1)
    assert len(parts) == 2
    wanted = [log for part in parts for log in by_hand(short, tokenizer.start_id, list(part))]
    assert cut.token_log_probabilities == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_a_tokenizer_without_a_start_is_refused_in_one_line(tokenizer: Tokenizer) -> None:
    bare = Tokenizer(tokenizer._inner, location="here")
    bare._roles = {**bare._roles, "start": None}
    with pytest.raises(FolderError, match=r"^here: has no special token for start\. Use a tokenizer that has one\.$"):
        score(model(tokenizer), bare, ["a bird"])


def test_minimal_pairs_are_judged_by_it(tokenizer: Tokenizer) -> None:
    made = model(tokenizer)
    pairs = [
        MinimalPair(phenomenon="p", good=TEXTS[0], bad=TEXTS[3]),
        MinimalPair(phenomenon="p", good=TEXTS[3], bad=TEXTS[0]),
    ]
    one, other = (scored.log_likelihood for scored in score(made, tokenizer, [TEXTS[0], TEXTS[3]]))
    assert one != other
    assert evaluate(made, tokenizer, pairs).accuracy == 0.5
    assert evaluate(made, tokenizer, pairs[:1]).accuracy == float(one > other)
