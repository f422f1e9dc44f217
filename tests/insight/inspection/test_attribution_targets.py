"""The outputs that are attributed to tokens."""

import numpy as np
import torch
from tasks.small import CASES, tokenizer
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row
from bertsmith.insight.inspection.attribution_targets import find_targets
from bertsmith.insight.inspection.inputs import read_text


def test_an_unknown_word_of_a_question_is_not_taken_for_the_separator() -> None:
    task, words = CASES["answer"].task(), tokenizer()
    read = read_text(task, words, "the 漢 cat 漢", "a 漢 dog likes the old river")
    assert read.ids.count(words.unknown_id) == 3
    row = Row(np.array(read.ids, np.int32), np.array(read.segments, np.int32))
    context = read.segments.index(1)
    numbers, shown = [token.word for token in read.tokens], [token.shown for token in read.tokens]
    scored = task.outputs

    def biased(tokens: Tokens) -> list[Tensor]:
        """Scores by which an answer in the question would win."""
        favour = torch.arange(len(row)) < context
        return [one + 99 * favour[:, None] for one in scored(tokens)]

    task.outputs = biased
    (found,) = find_targets(task, words, row, numbers, shown)
    assert context <= found.details["start"] <= found.details["end"] < len(row) - 1
