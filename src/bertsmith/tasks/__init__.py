"""Learning with labels. One file per task: what it is, its Config, head and loss, items and predictions.

base      what every task is: an objective that can also be scored
classify  one text or two: a class, a number, or several labels
tag       a label for every word
features  the same, from the vectors of a network that stays as it is; feature_classes the class of a text
answer    the stretch of a passage that answers a question
choose    the right one of several endings
embed     vectors that can be compared
write     any of these, and others, as a text that is written about a text
adapt     how much of a network a task may change; adapter keeps what LoRA has learnt, under peft's names
scores, entities, squad, bleu, seeds   how good answers are, by the field's own rules; and how sure that is
confusion, calibration, mistakes, findings, measure   what a report says about predictions
"""

from bertsmith.tasks.answer import Answer
from bertsmith.tasks.base import Task
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.embed import Embed
from bertsmith.tasks.feature_classes import FeatureClassify
from bertsmith.tasks.features import FeatureTag
from bertsmith.tasks.tag import Tag
from bertsmith.tasks.write import Write

TASKS: dict[str, type[Task]] = {
    "classify": Classify,
    "tag": Tag,
    "features": FeatureTag,
    "classify_features": FeatureClassify,
    "answer": Answer,
    "choose": Choose,
    "embed": Embed,
    "write": Write,
}
