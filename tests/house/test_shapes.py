"""Shapes are checked at run time, and annotate a plain array: numpy 2.5 made NDArray an alias, which jaxtyping cannot
look into."""

import ast
from dataclasses import dataclass, field
from pathlib import Path

import jaxtyping
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import Tokens

shapes = pytest.importorskip("shapes", reason="beartype is not installed here")

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertsmith"


def of_aliases(text: str) -> list[int]:
    """The lines on which a shape is said of NDArray."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in dir(jaxtyping)
        and "NDArray" in ast.unparse(node.slice)
    ]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_shape_is_said_of_an_alias(path: Path) -> None:
    assert not of_aliases(path.read_text(encoding="utf-8"))


def test_one_would_be_seen() -> None:
    assert of_aliases('Whole = Int64[NDArray[np.int64], "_"]') == [1]


@shapes._shaped
def product(one: Float[Tensor, "T D"], other: Float[Tensor, "D"] | None, rows: int = 0) -> Float[Tensor, "T"]:
    return one.sum(1)[rows:] if other is None else (one @ other)[rows:]


def test_sizes_that_agree_are_let_through() -> None:
    for size in (3, 4):  # a call has dimensions of its own
        assert product(torch.ones(5, size), torch.ones(size)).shape == (5,)
    assert product(torch.ones(5, 3), None).shape == (5,)
    assert product(torch.ones(5, 3).double(), torch.ones(3).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [
        (torch.ones(5, 3), torch.ones(4), 0),  # the arguments do not agree
        (torch.ones(5, 3), torch.ones(3, 1), 0),  # a dimension too many
        (torch.ones(5, 3), torch.ones(3), 1),  # the result does not agree with the arguments
        (torch.ones(5, 3, dtype=torch.int64), torch.ones(3), 0),  # no floats
        (torch.ones(5, 3).numpy(), torch.ones(3), 0),  # no tensor
        (torch.ones(5, 3), torch.ones(3), 0.5),  # no whole number
    ],
)
def test_any_other_size_or_type_is_refused(one: Tensor, other: Tensor, rows: int) -> None:
    product(torch.ones(5, 3), torch.ones(3))
    with pytest.raises(shapes.BeartypeCallHintViolation):
        product(one, other, rows)


@pytest.mark.parametrize("shape", ["T D", "T 3", "T _", "... D", "T T", "*batch 3", "1 T"])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 3), (5,), (1, 5, 3), (1, 3)])
@pytest.mark.parametrize("kind", [Float, Int])
def test_a_check_says_what_jaxtypings_own_says_and_leaves_the_same_dimensions(
    kind: type, shape: str, sizes: tuple[int, ...]
) -> None:
    annotation, value = kind[Tensor, shape], torch.ones(sizes)
    found = []
    for check in (lambda: shapes.CHECK(annotation, value) == "", lambda: isinstance(value, annotation)):
        for _ in range(2):  # the second time by what was kept from the first
            shapes.storage.push_shape_memo({})
            shapes.storage.get_shape_memo()[0]["D"] = 3
            found.append((check(), dict(shapes.storage.get_shape_memo()[0])))
            shapes.storage.pop_shape_memo()
    assert found == found[:1] * 4


@dataclass
class Pair:
    """Two rows of numbers of one size."""

    one: Float[Tensor, "T"]
    other: Float[Tensor, "T"]
    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [(torch.ones(5), torch.ones(4), []), (torch.ones(5), torch.ones(5, 1), []), (torch.ones(5), torch.ones(5), 7)],
)
def test_fields_of_a_dataclass_are_checked_when_one_is_made(one: Tensor, other: Tensor, names: list[str]) -> None:
    checked = shapes._lighter(type("Pair", (Pair,), {"__init__": Pair.__init__}), typechecker=shapes.checked)
    assert checked(torch.ones(5), torch.ones(5)).names == []
    with pytest.raises(shapes.BeartypeCallHintViolation):
        checked(one, other, names)


@pytest.mark.slow("needs the shapes to be checked")
def test_dataclasses_of_the_package_are_checked() -> None:
    with pytest.raises(shapes.BeartypeCallHintViolation):
        Tokens(ids=torch.ones(3), bounds=torch.tensor([0, 3]), max_length=3)  # ids are whole numbers
