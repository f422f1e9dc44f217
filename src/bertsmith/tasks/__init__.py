"""Learning with labels. One file per task: what it is, its Config, head and loss, items and predictions.

base                what every task is: an objective that can also be scored
classification      one text or two: a class, a number, or several labels
tagging             a label for every word
feature_tagging     the same, from the vectors of a network that stays as it is; feature_classification a class
question_answering  the stretch of a passage that answers a question
multiple_choice     the right one of several endings
embedding           vectors that can be compared
text_to_text        any of these, and others, as a text that is written about a text
adapt               how much of a network a task may change; adapter keeps what LoRA has learnt, under peft's names
findings, class_findings, value_findings, mistakes, measure   what a report says about predictions
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
