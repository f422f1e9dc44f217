"""Opening a model folder: ours, or any BERT that Hugging Face's tools have written."""

from pathlib import Path

import torch

from bertsmith.config import build
from bertsmith.data.plan import Pairs
from bertsmith.errors import FolderError
from bertsmith.inside import shown
from bertsmith.models import folder as folders
from bertsmith.models import sentence as sentences
from bertsmith.models.dialects import dialect_of
from bertsmith.models.elmo import ElmoConfig
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.folder import Opened
from bertsmith.models.networks import Translator, network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.transformer import Transformer, TransformerConfig
from bertsmith.objectives.base import Objective
from bertsmith.objectives.both_ways import BothWays
from bertsmith.objectives.causal import NextToken
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.onward import Onward
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks import TASKS
from bertsmith.tasks.write import Write
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.use import device as devices
from bertsmith.use import inputs
from bertsmith.use.model import Model
from bertsmith.use.save import Origin


def load(folder: str | Path, device: str | torch.device = "auto") -> Model:
    """The model in a folder with config.json, model.safetensors and tokenizer.json; or in the folder of its run.

    It computes on the fastest device there is, or on the one that is named: `load("runs/mine", device="cpu")`.
    """
    if not isinstance(folder, str | Path) or not str(folder):
        raise FolderError("folder", f"is {inputs.shown(folder)}", "Give the path of a model folder")
    path, device = folders.model_folder(folder), devices.device(device)
    opened = folders.read(path)
    tokenizer = Tokenizer.load(path)
    if tokenizer.vocabulary > opened.config.vocabulary:
        fact = f"the tokenizer has {tokenizer.vocabulary} pieces, the model {opened.config.vocabulary}"
        raise FolderError(path, fact, "The two do not belong together")
    if not (isinstance(opened.config, TransformerConfig) and opened.config.causal):
        tokenizer = tokenizer.for_tasks()  # a file may leave it to BERT's own code to set pieces round texts
    with torch.device("meta"):
        objective = _objective(opened, path / folders.CONFIG)
    objective.to_empty(device=device)
    missing, _ = objective.load_state_dict(opened.state, strict=False)
    if missing and opened.learnt is not None:
        raise FolderError(path, f"lacks the weight '{missing[0]}', which {opened.learnt.task} needs")
    sentence = sentences.read(path)
    guesses = "head" in opened.parts or isinstance(objective, NextToken | Onward)
    said = opened.raw.get("bertsmith")
    learnt = said.get(folders.LEARNT_FROM) if isinstance(said, dict) else None
    return Model(
        objective.eval(),
        tokenizer,
        str(path),
        guesses=guesses,
        sentence=sentence,
        origin=Origin.of(path, opened, objective),
        learnt_from=learnt if isinstance(learnt, dict) else None,
    )


def _objective(opened: Opened, place: Path) -> Objective:
    """The network with the heads that the folder holds."""
    learnt = opened.learnt
    if opened.config.decoder:
        if said := _said(opened, place):
            return said
        if not isinstance(opened.config, TransformerConfig):
            remedy = "Teach it first: bertsmith finetune lstm-attention DATA --out runs/mine"
            raise FolderError(place, "does not tell what the network has learnt to write", remedy)
        return SpanCorruption(EncoderDecoder(opened.config), SpanCorruption.Config())
    if isinstance(opened.config, RecurrentConfig):
        return Onward(network(opened.config), Onward.Config())
    if isinstance(opened.config, ElmoConfig):
        return BothWays(network(opened.config), BothWays.Config())
    if not isinstance(opened.config, TransformerConfig):
        remedy = "They are features: bertsmith finetune FOLDER DATA --task features --out runs/mine"
        raise FolderError(place, "holds word vectors and nothing that uses them", remedy)
    trunk = Transformer(opened.config)
    if learnt is None and opened.config.causal:
        return NextToken(trunk, NextToken.Config())
    if learnt is None:
        pairs: Pairs = "none"
        if {"pooler", "next"} <= opened.parts:
            pairs = "order" if opened.raw.get("pairs", dialect_of(opened.config).pairs) == "order" else "next"
        return MaskedLM(trunk, MaskedLM.Config(pairs=pairs))
    kind, config, labels = TASKS[learnt.task], TASKS[learnt.task].Config(), learnt.labels
    match learnt.task:
        case "classify":
            config = kind.Config(answer=learnt.answer, pooling=learnt.pooling)
        case "answer":
            said, length = opened.raw.get("bertsmith"), opened.config.length
            threshold = said.get("threshold") if isinstance(said, dict) else None
            config = kind.Config(
                question=min(config.question, length // 4),
                overlap=min(config.overlap, length // 3),
                threshold=threshold if isinstance(threshold, float) else None,
            )
        case "choose":
            labels = ()  # any number of endings can be compared
    return kind(trunk, config, labels)


def _said(opened: Opened, place: Path) -> Write | None:
    """What a T5 was taught to write, which its folder tells in words of ours: it has no head to tell by."""
    said = opened.raw.get("bertsmith")
    if not isinstance(said, dict) or said.get("task") != "write":
        return None
    labels = said.get("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise FolderError(place, f"'labels' of bertsmith is {shown(labels)}", "Give a list of names")
    settings = {name: value for name, value in said.items() if name not in ("task", "labels", folders.LEARNT_FROM)}
    trunk = network(opened.config)
    assert isinstance(trunk, Translator)  # as it has a decoder
    return Write(trunk, build(settings, Write.Config, f"{place} [bertsmith]"), tuple(labels))
