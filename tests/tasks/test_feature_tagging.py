"""Tags from a network that stays as it is."""

import copy

import pytest
import torch
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.labelled.examples import Sentence
from bertsmith.data.rows import pack_rows
from bertsmith.errors import RecipeError
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.feature_tagging import FeatureTagging, Layers, freeze
from bertsmith.tasks.tagging import TokenClassification
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train.cuda_graphs import CudaGraphs

SMALL = TransformerConfig(vocabulary=100, width=8, layers=5, heads=2, feed_forward=16, max_length=24, dropout=0.5)
LABELS = ("A", "B", "O")
WORDS = ["red", "blue", "green", "one", "two", "three", "and"]


def trunk(layers: int = 5) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig(**{**vars(SMALL), "layers": layers}))


def task(layers: Layers = "last", **settings: int | float) -> FeatureTagging:
    torch.manual_seed(1)
    return FeatureTagging(trunk(), FeatureTagging.Config(layers=layers, **{"hidden": 6, **settings}), LABELS)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 4, TokenizerConfig(vocabulary=100, min_frequency=1))


def sentences(count: int) -> list[Sentence]:
    """A word after `and` is a B, another colour an A: the tag needs a neighbour."""
    found = []
    for number in range(count):
        words = [WORDS[(number * 5 + place * place + place * number) % 7] for place in range(3 + number % 6)]
        tags = [
            "B" if before == "and" else "A" if word in WORDS[:3] else "O"
            for before, word in zip(["", *words], words, strict=False)
        ]
        found.append(Sentence(location=f"made:{number}", words=tuple(words), tags=tuple(tags)))
    return found


def by_hand(layers: Layers, states: list[Tensor]) -> Tensor:
    """The rows of table 7, for five layers."""
    embeddings, _first, second, third, fourth, fifth = states
    return {
        "embeddings": embeddings,
        "second_to_last": fourth,
        "last": fifth,
        "sum_last_four": second + third + fourth + fifth,
        "concatenate_last_four": torch.cat([second, third, fourth, fifth], 1),
        "sum_all": _first + second + third + fourth + fifth,
        "mix": sum(states) / 6,
    }[layers]


ROWS: tuple[Layers, ...] = (
    "embeddings", "second_to_last", "last", "sum_last_four", "concatenate_last_four", "sum_all", "mix",
)  # fmt: skip


@pytest.mark.parametrize("layers", ROWS)
def test_features_are_the_rows_of_the_table(layers: Layers) -> None:
    tokens = Tokens.from_rows([[5, 6, 7], [8, 9, 10, 11, 12], [13]])
    tagger = task(layers).train()  # even in training the trunk drops nothing
    true = by_hand(layers, trunk().eval().hidden_states(tokens))
    torch.testing.assert_close(tagger.features(tokens), true)
    assert tagger.recurrent.layers[0]["left_to_right"].input_size == true.shape[1]
    assert len(tagger.outputs(tokens)) == 3


@pytest.mark.parametrize(
    ("layers", "least"), [("sum_last_four", 4), ("concatenate_last_four", 4), ("second_to_last", 2)]
)
def test_a_model_with_too_few_layers_is_refused_in_one_line(layers: Layers, least: int) -> None:
    config = FeatureTagging.Config(layers=layers, hidden=6)
    FeatureTagging(trunk(least), config, LABELS)
    with pytest.raises(RecipeError) as caught:
        FeatureTagging(trunk(least - 1), config, LABELS)
    assert str(caught.value) == (
        f"task.layers: '{layers}' needs {least} layers, and the model has {least - 1}. "
        "Use last, sum_all or a deeper model."
    )


def test_the_weights_of_a_mix_are_learnt_with_the_tagger(tokenizer: Tokenizer) -> None:
    tagger = task("mix").train()
    batch = tagger.collate(tagger.preprocess(sentences(4), tokenizer, 24), Bucket(batch_size=4, max_length=24))
    tagger(batch)["tag"].total.backward()
    assert tagger.layer_selection.scalar_mix is not None
    assert tagger.layer_selection.scalar_mix.scores.grad is not None
    assert tagger.layer_selection.scalar_mix.scores.grad.abs().min() > 0
    assert all(weight.grad is None for weight in tagger.trunk.parameters())


def test_a_transformer_concatenates_its_last_four_layers_by_default() -> None:
    assert (
        FeatureTagging(trunk(), FeatureTagging.Config(hidden=6), LABELS).layer_selection.layers
        == "concatenate_last_four"
    )


def test_a_network_without_hidden_states_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        freeze(EncoderDecoder(TransformerConfig(**{**vars(SMALL), "decoder_layers": 1})))
    fact = "the network does not return the hidden states of its layers"
    assert str(caught.value) == f"task.kind: {fact}. Use a network such as elmo or bert-base."


def test_one_tag_is_refused() -> None:
    with pytest.raises(RecipeError, match="there is only one tag"):
        FeatureTagging(trunk(), FeatureTagging.Config(), ("O",))


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"lstm_layers": 0}, {"dropout": 1.0}, {"overlap": 1.0}])
def test_settings_without_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        FeatureTagging.Config(**wrong)


def test_the_papers_bilstm_has_two_layers_of_768_in_either_direction() -> None:
    tagger = FeatureTagging(trunk(), FeatureTagging.Config(), LABELS)
    assert [layer["right_to_left"].hidden_size for layer in tagger.recurrent.layers] == [768, 768]
    assert tagger.classifier.dense.in_features == 2 * 768


def test_gradients_never_reach_the_trunk(tokenizer: Tokenizer) -> None:
    tagger = task().train()
    examples = sentences(4)
    batch = tagger.collate(tagger.preprocess(examples, tokenizer, 24), Bucket(batch_size=4, max_length=24))
    tagger(batch)["tag"].total.backward()
    assert not tagger.trunk.training
    assert tagger.recurrent.training
    for name, parameter in tagger.named_parameters():
        own = not name.startswith("trunk.")
        assert parameter.requires_grad == own, name
        assert (parameter.grad is not None) == own, name


@pytest.mark.slow
def test_a_tagging_problem_is_learnt_with_a_frozen_trunk(tokenizer: Tokenizer) -> None:
    tagger = task("sum_all", hidden=16, dropout=0.0)
    before = copy.deepcopy(tagger.trunk.state_dict())
    examples = sentences(28)
    items = tagger.preprocess(examples, tokenizer, 24)
    batch = tagger.collate(items, Bucket(batch_size=28, max_length=24))
    optimizer = torch.optim.AdamW([weight for weight in tagger.parameters() if weight.requires_grad], lr=0.03)
    untrained = tagger.score(examples, predict(tagger.eval(), examples, items, device="cpu"))
    tagger.train()
    for _ in range(40):
        optimizer.zero_grad()
        (tagger(batch)["tag"].total / batch.counts["tag"]).backward()
        optimizer.step()
    tagger.eval()
    scores = tagger.score(examples, predict(tagger, examples, items, device="cpu"))
    assert untrained["accuracy"] < 0.8
    assert scores["accuracy"] > 0.97
    assert all(torch.equal(weight, before[name]) for name, weight in tagger.trunk.state_dict().items())


def test_items_and_targets_are_those_of_tagging(tokenizer: Tokenizer) -> None:
    examples = sentences(5)
    one = task().preprocess(examples, tokenizer, 6)
    other = TokenClassification(trunk(), TokenClassification.Config(), LABELS).preprocess(examples, tokenizer, 6)
    assert len(one) > len(examples)  # some need several windows
    for mine, theirs in zip(one, other, strict=True):
        assert mine.rows[0].ids.tolist() == theirs.rows[0].ids.tolist()
        assert mine.target.tolist() == theirs.target.tolist()
    assert TASKS["features"] is FeatureTagging
    assert FeatureTagging.file_kind(FeatureTagging.Config()) == "tag"
    assert FeatureTagging.collect_labels(examples) == TokenClassification.collect_labels(examples)


def test_a_padded_batch_has_the_same_logits_and_a_short_maximum(tokenizer: Tokenizer) -> None:
    tagger = task().eval()
    items = tagger.preprocess(sentences(5), tokenizer, 24)
    batch = tagger.collate(
        items, Bucket(batch_size=6, max_length=24, pad_to_multiple_of=64, padding=tokenizer.padding_id)
    )
    longest = max(len(item.rows[0]) for item in items)
    assert longest <= batch.tokens.max_length < 2 * longest
    assert batch.tokens.max_length < 24
    assert len(batch.tokens.ids) == 64
    plain = tagger.logits(pack_rows([item.rows[0] for item in items]))
    torch.testing.assert_close(tagger.logits(batch.tokens)[: len(plain)], plain, rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_a_step_can_be_captured_and_replayed(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    wide = Transformer(TransformerConfig(**{**vars(SMALL), "width": 16}))
    config = FeatureTagging.Config(hidden=16, dropout=0.0)
    tagger = FeatureTagging(wide, config, LABELS).cuda().train()
    bucket = Bucket(batch_size=6, max_length=24, pad_to_multiple_of=64, padding=tokenizer.padding_id)
    batch = tagger.collate(tagger.preprocess(sentences(5), tokenizer, 24), bucket)

    def step(batch: Batch, counts: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            total = tagger(batch)["tag"].total
        loss = total / counts["tag"]
        loss.backward()
        return loss.detach()[None]

    graphs = CudaGraphs(step, torch.device("cuda"))
    losses = [graphs(batch).item() for _ in range(3)]  # runs, is recorded and played, is played
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert losses[1] == losses[2]
