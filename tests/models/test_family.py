import pytest
import torch

from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY, member
from bertsmith.models.networks import build_network
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import Pooler

PUBLISHED = {
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "xlm-roberta-base": 278_043_648,
    "camembert-base": 110_621_952,
    "mpnet-base": 109_486_464,
    "albert-base": 11_683_584,
    "albert-large": 17_683_968,
    "albert-xlarge": 58_724_864,
    "albert-xxlarge": 222_595_584,
}
WITHOUT_POOLER = {
    "transformer-base": 63_082_496,
    "transformer-small": 7_626_752,
    "transformer-tiny": 2_373_632,
    "gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "distilbert-base": 66_362_880,
    "electra-small": 13_483_008,
    "electra-base": 108_891_648,
    "electra-large": 334_092_288,
    "modernbert-base": 149_014_272,
    "modernbert-large": 394_781_696,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
    "t5-v1.1-large": 783_150_080,
}
# LSTMs: embeddings, encoder, bridge, decoder, attention and output layer.
LSTM_SMALL = 8_192 * 256 + 2 * 4 * 256 * (256 + 256 + 2) + 2 * 512 * (512 + 1)
LSTM_LARGE = 2 * 4 * 4 * 1000 * (1000 + 1000 + 2) + 2 * 4 * 1000 * (1000 + 1)


def smith(layers: int, width: int, inner: int) -> int:
    return 30_522 * width + layers * (4 * width * width + 3 * width * inner + 2 * width) + width


OURS = {
    "smith-base": smith(12, 768, 2048),
    "smith-large": smith(24, 1024, 2752),
    "smith-medium": smith(12, 512, 1344),
    "smith-small": smith(4, 512, 1344),
    "smith-mini": smith(4, 256, 704),
    "smith-tiny": smith(2, 128, 320),
    "seq2seq": LSTM_SMALL + 4 * 512 * (256 + 512 + 2) + 256 * (512 + 1),
    "lstm-attention": LSTM_SMALL + 4 * 512 * (256 + 256 + 512 + 2) + 512 * 512 + 256 * (2 * 512 + 1),
    "seq2seq-large": 2 * 80_000 * 1000 + LSTM_LARGE + 1000 * (1000 + 1),
    "lstm-attention-large": 2 * 50_000 * 1000 + LSTM_LARGE + (4 + 1) * 1000 * 1000 + 1000 * (2 * 1000 + 1),
}

RECURRENT = {"rnn-small", "lstm-small", "gru-small", "lstm-medium", "lstm-large", "awd-lstm"}  # test_recurrent.py
ELMO = {"elmo", "elmo-medium", "elmo-small"}  # whose numbers test_elmo.py has


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_member_has_the_published_number_of_parameters(name: str) -> None:
    config = member(name)
    with torch.device("meta"):
        parts = [Transformer(config), Pooler(config.width)]
    assert sum(part.numel() for module in parts for part in module.parameters()) == PUBLISHED[name]
    assert config.parameter_count == PUBLISHED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_POOLER)
def test_a_member_that_leaves_the_pooler_to_tasks_has_the_published_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        trunk = build_network(member(name))
    assert sum(part.numel() for part in trunk.parameters()) == WITHOUT_POOLER[name] == member(name).parameter_count


@pytest.mark.parametrize("name", OURS)
def test_our_own_members_have_the_parameters_of_their_matrices(name: str) -> None:
    with torch.device("meta"):
        trunk = build_network(member(name))
    assert sum(part.numel() for part in trunk.parameters()) == OURS[name] == member(name).parameter_count


def test_every_member_is_checked() -> None:
    assert FAMILY.keys() == PUBLISHED.keys() | WITHOUT_POOLER.keys() | OURS.keys() | RECURRENT | ELMO


def test_an_unknown_member_gets_the_nearest_name() -> None:
    with pytest.raises(RecipeError) as caught:
        member("bert-larg")
    assert str(caught.value) == "model.kind: unknown member 'bert-larg'. Did you mean 'bert-large'?"
