"""Both ways in one batch: what each part reads and guesses, that they share all weights, and a whole run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from prose import MASK, PADDING, START, STOP, VOCABULARY, prose
from tiny import prepared, recipe

from bertsmith.commands import pretrain
from bertsmith.data.batch import Tokens
from bertsmith.data.packing.pack import PackedBatch, Packer
from bertsmith.data.packing.pairs import Pairs
from bertsmith.errors import RecipeError
from bertsmith.inference.load import load
from bertsmith.models.family import MODERN_BERT
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives import causal
from bertsmith.objectives.masked import Collator as Hide
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masking import MaskingVocabulary
from bertsmith.objectives.mixed import Collator, MixedBatch, MixedLM, split
from bertsmith.train import log
from bertsmith.train.evaluate import evaluate

pytestmark = pytest.mark.slow("trains")

SIZES = {"vocabulary": VOCABULARY, "width": 32, "layers": 2, "heads": 2, "feed_forward": 48, "max_length": 64}
SHAPE = TransformerConfig(**SIZES)
SPECIAL = np.arange(VOCABULARY) < 5
HIDE = Hide(MaskedLM.Config(pairs="none"), MaskingVocabulary.of(~SPECIAL, SPECIAL, MASK))


def objective(shape: TransformerConfig = SHAPE, **settings: object) -> MixedLM:
    made = MixedLM(Transformer(shape), MixedLM.Config(**settings))
    initialise(made, 0, std=0.1)
    return made.eval()


def packed(position: int = 0, *, length: int = 64, tokens: int = 1024, pairs: Pairs = "none") -> PackedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    return Packer(prose(300), max_length=length, batch_tokens=tokens, pairs=pairs, **how)(position)


def batch(position: int = 0, share: float = 0.5) -> MixedBatch:
    return Collator(share, HIDE)(packed(position))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 50), st.integers(1, 1023), st.sampled_from([16, 48, 64]))
def test_two_parts_have_all_that_the_whole_had(position: int, size: int, length: int) -> None:
    whole = packed(position, length=length)
    first, rest = split(whole, size)
    for name in ("ids", "positions", "segments", "corpus_positions"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in (first, rest)]), getattr(whole, name))
    assert first.real_tokens + rest.real_tokens == whole.real_tokens
    for part, begin in ((first, 0), (rest, size)):
        assert len(part.bounds) == len(whole.bounds)
        assert part.bounds[0] == 0
        assert part.bounds[-1] == len(part.ids)
        assert (np.diff(part.bounds) >= 0).all()
        assert part.bounds[part.real_sequences] == part.real_tokens
        inner = set((part.bounds + begin).tolist()) - {begin, begin + len(part.ids)}
        assert inner == {bound for bound in whole.bounds.tolist() if begin < bound < begin + len(part.ids)}
        begins = np.searchsorted(whole.bounds, begin, "right") - 1
        assert np.array_equal(part.epochs[: part.real_sequences], whole.epochs[begins:][: part.real_sequences])


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_each_part_is_what_its_own_objective_makes_of_it(share: float) -> None:
    shapes = set()
    for position in range(4):
        first, rest = split(packed(position), round(share * 1024))
        back, hidden, both = causal.collate(first), HIDE(rest), batch(position, share)
        for one, other in ((both, hidden), (both.causal, back)):
            assert torch.equal(one.tokens.ids, other.tokens.ids)
            assert torch.equal(one.tokens.bounds, other.tokens.bounds)
            assert torch.equal(one.target_positions, other.target_positions)
            assert torch.equal(one.targets, other.targets)
        assert both.counts == {
            "masked": hidden.counts["masked"],
            "next_token": back.counts["next_token"],
            "tokens": hidden.counts["tokens"] + back.counts["tokens"],
            "squares": hidden.counts["squares"] + back.counts["squares"],
        }
        shapes.add(
            (
                len(both.target_positions),
                len(both.causal.target_positions),
                len(both.tokens.ids),
                len(both.tokens.bounds),
            )
        )
    assert len(shapes) == 1  # a compiled step knows one shape


@pytest.mark.parametrize("pairs", ["nsp", "sop"])
@pytest.mark.parametrize("share", [1 / 16, 0.125, 0.5])
def test_pairs_of_the_masked_part_keep_their_labels_and_a_cut_one_has_none(share: float, pairs: Pairs) -> None:
    settings = MixedLM.Config(pairs=pairs, causal_share=share)
    whole, hide = packed(pairs=pairs), Hide(settings, MaskingVocabulary.of(~SPECIAL, SPECIAL, MASK))
    size = round(share * 1024)
    cut = size not in whole.bounds
    assert cut
    both = Collator(share, hide)(whole)
    assert both.labels is not None
    begin = int(np.searchsorted(whole.bounds, size))  # the first sequence that is whole in the masked part
    kept = whole.labels[begin : whole.real_sequences]
    assert both.labels[0] == -100
    assert np.array_equal(both.labels[1 : 1 + len(kept)], kept)
    assert (both.labels[1 + len(kept) :] == -100).all()
    assert both.counts[pairs] == (kept != -100).sum() > 0
    made = objective(pairs=pairs, pair_weight=0.5)
    with torch.no_grad():
        terms = made(both)
    assert {name: term.weight for name, term in terms.items()} == {"masked": 1.0, pairs: 0.5, "next_token": 1.0}


@pytest.mark.parametrize("shape", [SHAPE, replace(MODERN_BERT, **SIZES, window=4)], ids=["bert", "modernbert"])
def test_losses_are_those_of_a_causal_and_a_bidirectional_network(shape: TransformerConfig) -> None:
    made, asked = objective(shape, causal_weight=0.5), batch()
    masked = MaskedLM(Transformer(shape), MaskedLM.Config(pairs="none")).eval()
    masked.load_state_dict(made.state_dict())  # strictly: no weight is added
    backwards = Transformer(replace(shape, causal=True)).eval()
    backwards.load_state_dict(made.trunk.state_dict())
    with torch.no_grad():
        terms = made(asked)
        torch.testing.assert_close(terms["masked"].total, masked(asked)["masked"].total)
        logits = masked.logits(backwards(asked.causal.tokens, "eager")[asked.causal.target_positions])
    wanted = torch.nn.functional.cross_entropy(logits, asked.causal.targets, reduction="sum")
    torch.testing.assert_close(terms["next_token"].total, wanted)
    assert terms["next_token"].correct == (logits.argmax(-1) == asked.causal.targets).sum()
    assert [terms[name].weight for name in ("masked", "next_token")] == [1.0, 0.5]


def test_the_neighbours_and_the_other_part_do_not_change_a_loss() -> None:
    made, one, other = objective(), batch(0), batch(1)
    crossed = replace(one, causal=other.causal)
    with torch.no_grad():
        mixed, first, second = made(crossed), made(one), made(other)
    assert torch.equal(mixed["masked"].total, first["masked"].total)
    assert torch.equal(mixed["next_token"].total, second["next_token"].total)


def test_a_token_costs_the_flops_of_its_part() -> None:
    made = objective(causal_share=0.25, mask_rate=0.2)
    back = replace(SHAPE, causal=True).flops(40.0, 1.0)
    assert made.flops(40.0) == pytest.approx(0.25 * back + 0.75 * SHAPE.flops(40.0, 0.2))
    assert made.prediction_share == pytest.approx(0.25 + 0.75 * 0.2)


def test_bits_per_byte_are_those_of_masked_tokens() -> None:
    with torch.no_grad():
        figures = evaluate(objective(), [batch()], 4.0)
    assert figures["bits_per_byte"] == pytest.approx(figures["masked_loss"] / np.log(2) / 4)
    assert figures["loss"] == pytest.approx(figures["masked_loss"] + figures["next_token_loss"])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"pairs": "nsp", "pair_weight": 0.0}, "pair_weight is 0.0. Give more than 0, usually 1"),
        ({"causal_share": 1.0}, "causal_share is 1.0. Give a share, above 0 and below 1"),
        ({"causal_weight": 0.0}, "causal_weight is 0.0. Give more than 0, usually 1"),
    ],
)
def test_settings_without_meaning_are_refused(setting: dict[str, float | str], said: str) -> None:
    with pytest.raises(ValueError, match="^" + said.replace(".", r"\.") + "$"):
        MixedLM.Config(**setting)


def test_a_causal_network_is_refused() -> None:
    with pytest.raises(RecipeError, match="the network is causal"):
        MixedLM(Transformer(replace(SHAPE, causal=True)), MixedLM.Config())


def test_a_run_learns_both_and_writes_a_bert_that_is_also_a_decoder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = ["objective.kind=mixed", "objective.pairs=none", "train.steps=80", "optimizer.learning_rate=0.01"]
    pretrain.pretrain(recipe(prepared(tmp_path), out, *changes))
    steps = [line["terms"] for line in log.read(out / log.NAME) if line["kind"] == "step"]
    for name in ("masked", "next_token"):
        assert steps[-1][name] < 0.7 * steps[0][name]
    page = (out / "report.html").read_text()
    for text in ("Loss of masked words, in nats", "Loss of next tokens, in nats", "next tokens predicted correctly"):
        assert text in page
    model = load(out / "model")
    assert isinstance(model.objective, MaskedLM)
    decoder = transformers.BertLMHeadModel
    theirs, report = decoder.from_pretrained(out / "model", is_decoder=True, output_loading_info=True)
    assert not report["missing_keys"]
    tokens = Tokens.from_rows(model.tokenizer.encode(["the cat sees the dog"]))
    with torch.no_grad():
        ours = model.objective.logits(model.objective.trunk(tokens, causal=True))
        logits = theirs.eval()(input_ids=tokens.ids[None].long()).logits[0]
    torch.testing.assert_close(ours, logits, rtol=1e-5, atol=1e-5)
