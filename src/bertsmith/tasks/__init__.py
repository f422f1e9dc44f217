"""Fine-tuning tasks. One file each: what it is, its Config, its head and loss, its items and predictions.

base                a task: an objective that can also be scored
classification      text classification: single label, multi-label, regression; of one text or a pair
tagging             token classification: a label for every word
feature_tagging     the same on frozen features, by a Bi-LSTM; feature_classification for whole texts
question_answering  extractive question answering: the span of a context
multiple_choice     the right one of several endings
embedding           sentence embeddings
text_to_text        any task as text generation, with label_words; generated_scores scores the texts
adapt               full fine-tuning, a frozen trunk, or LoRA; adapter saves LoRA by peft's names
findings, class_findings, value_findings, mistakes, measure   the contents of a report about predictions
"""

from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.embedding import SentenceEmbedding
from bertsmith.tasks.feature_classification import FeatureClassification
from bertsmith.tasks.feature_tagging import FeatureTagging
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering
from bertsmith.tasks.tagging import TokenClassification
from bertsmith.tasks.text_to_text import TextToText

TASKS: dict[str, type[Task]] = {
    "classify": SequenceClassification,
    "tag": TokenClassification,
    "features": FeatureTagging,
    "classify_features": FeatureClassification,
    "answer": QuestionAnswering,
    "choose": MultipleChoice,
    "embed": SentenceEmbedding,
    "write": TextToText,
}
# The field's names of tasks: our task, and for classification its problem.
TASK_NAMES: dict[str, tuple[str, str | None]] = {
    "text-classification": ("classify", None),
    "regression": ("classify", "regression"),
    "multi-label": ("classify", "multi_label"),
    "token-classification": ("tag", None),
    "ner": ("tag", None),
    "pos": ("tag", None),
    "question-answering": ("answer", None),
    "multiple-choice": ("choose", None),
    "sentence-similarity": ("embed", None),
    "text-to-text": ("write", None),
    "translation": ("write", None),
    "summarization": ("write", None),
}


def task_name(kind: str) -> str:
    """The field's name of one of our tasks: token-classification for `tag`."""
    return next((name for name, (task, problem) in TASK_NAMES.items() if task == kind and problem is None), kind)
