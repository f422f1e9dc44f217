"""What a model folder says of its fine-tuning: the columns and the length of the texts that the model learnt from."""

from typing import Any

from bertsmith.data.labelled.inputs import TrainedOn
from bertsmith.objectives.base import Objective
from bertsmith.tasks.base import Task

MIN_LENGTH = 8  # tokens of an input; a folder that claims less is not believed


class TrainingData(dict[str, Any]):
    """The record of config.json, each entry of which may be missing or wrong."""

    def length(self, most: int) -> int:
        """The tokens of an input that it was trained and scored with; `most` where the folder does not say."""
        length = self.get("max_length")
        return min(length, most) if isinstance(length, int) and length >= MIN_LENGTH else most

    def input_format(self, task: Objective) -> TrainedOn:
        """The task's file format and the columns of the training data."""
        assert isinstance(task, Task)
        kind, texts, contexts = task.file_kind(task.config), self.get("texts"), self.get("context_columns")
        tags = frozenset(task.labels) if kind == "tag" else frozenset[str]()
        if self.get("kind") != kind or not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            return TrainedOn(kind=kind, tags=tags)
        contexts = contexts if isinstance(contexts, int) and 0 < contexts < len(texts) else 1
        return TrainedOn(kind=kind, texts=tuple(texts), context_columns=contexts, tags=tags)
