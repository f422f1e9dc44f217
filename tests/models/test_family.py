import pytest
import torch

from bertsmith.errors import RecipeError
from bertsmith.models.family import FAMILY, member
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import Pooler

PUBLISHED = {
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_member_has_the_published_number_of_parameters(name: str) -> None:
    config = member(name)
    with torch.device("meta"):
        parts = [Transformer(config), Pooler(config.width)]
    assert sum(part.numel() for module in parts for part in module.parameters()) == PUBLISHED[name]
    assert config.count == PUBLISHED[name]


def test_every_member_is_checked() -> None:
    assert FAMILY.keys() == PUBLISHED.keys()


def test_an_unknown_member_gets_the_nearest_name() -> None:
    with pytest.raises(RecipeError) as caught:
        member("bert-larg")
    assert str(caught.value) == "model.kind: unknown member 'bert-larg'. Did you mean 'bert-large'?"
