"""Loading a model folder: one of bertsmith's, or one of Hugging Face transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.config import build
from bertsmith.data.packing.pairs import Pairs
from bertsmith.errors import FolderError, RecipeError, suggest
from bertsmith.files import file_inside, short_repr
from bertsmith.inference import device as devices
from bertsmith.inference import inputs
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_model import OnnxModel
from bertsmith.inference.onnx_session import Graph
from bertsmith.inference.save import Origin
from bertsmith.models.hf import exported, image_classifiers, vision_folder
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers as sentences
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.folder import ModelFolder
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import EncoderDecoderNetwork, Network, build_network
from bertsmith.objectives.base import LanguageModel, Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.tasks import TASKS
from bertsmith.tasks.base import Task
from bertsmith.tasks.text_to_text import TextToText
from bertsmith.text.tokenizer import Tokenizer

BACKENDS = ("auto", "torch", *exported.GRAPHS)


def load(folder: str | Path, device: str | torch.device = "auto", backend: str = "auto") -> Model | Any:
    """Load a model folder, or the folder of its run: a `Model` of text, or of a ViT or DeiT an `ImageModel`.

    `device` is "auto", the fastest of this machine, or "cpu", "cuda", "cuda:1". `backend` is "torch", or of a folder
    that `bertsmith.export` wrote "onnx" (its default) or "onnx-int8": ONNX Runtime, on the CPU.

    >>> bertsmith.load("runs/mine", device="cpu")
    Model(bert, 2 layers of width 32, ... parameters, ... tokens, pretrained (MaskedLM), cpu, 'runs/mine/model')
    >>> bertsmith.load("runs/photos", device="cpu")
    ImageModel(vit, 3 layers of width 16, ..., classes (cat, dog, bird), cpu, 'runs/photos/model')
    """
    _check_path(folder)
    if not image_classifiers.is_image_folder(folder):
        return load_text_model(folder, device, backend)
    if backend not in ("auto", "torch"):
        raise RecipeError("backend", f"is {inputs.short_repr(backend)}", "Models of images have 'torch' alone")
    return load_image_model(folder, device)


def load_image_model(folder: str | Path, device: str | torch.device = "auto") -> ImageModel:
    """The model of images in a folder; one of text is refused."""
    _check_path(folder)
    path = folders.model_folder(folder)
    if not image_classifiers.is_image_folder(path) and (path / folders.CONFIG).is_file():
        raise FolderError(path, "is a model of text, and takes no images", "Give a folder of ViT or DeiT")
    transformer = vision_folder.is_vision(path) or not (path / folders.CONFIG).is_file()
    opened = vision_folder.read(path) if transformer else image_classifiers.read(path)
    return ImageModel(opened, str(path), devices.resolve_device(device))


def load_text_model(folder: str | Path, device: str | torch.device = "auto", backend: str = "auto") -> Model:
    """The model of text in a folder, whose files are config.json, model.safetensors and tokenizer.json."""
    _check_path(folder)
    if image_classifiers.is_image_folder(folder):
        raise FolderError(folder, "is a model of images, and takes no text", "Use predict, embed, search or inspect")
    if backend not in BACKENDS:
        raise RecipeError("backend", f"is {inputs.short_repr(backend)}", suggest(str(backend), BACKENDS))
    path, device = folders.model_folder(folder), devices.resolve_device(device)
    if backend == "auto":
        backend = "onnx" if exported.is_exported(path) else "torch"
    opened = folders.read(path) if backend == "torch" else exported.read(path)
    tokenizer = Tokenizer.load(path)
    if tokenizer.vocabulary > opened.config.vocabulary:
        fact = f"the tokenizer has {tokenizer.vocabulary} tokens, the model {opened.config.vocabulary}"
        raise FolderError(path, fact, "The two do not belong together")
    with torch.device("meta"):
        objective = _objective(opened, path / folders.CONFIG)
    has_lm_head = isinstance(objective, LanguageModel) and (opened.config.causal or "mlm_head" in opened.parts)
    own = opened.config_json.get("bertsmith")
    training_data = own.get(folders.TRAINED_ON) if isinstance(own, dict) else None
    tokenizer = _as_trained(tokenizer, opened, training_data)
    described: dict[str, Any] = {
        "has_lm_head": has_lm_head,
        "sentence_config": sentences.read(path),
        "training_data": training_data if isinstance(training_data, dict) else None,
    }
    if backend != "torch":
        graph = _graph(path, exported.GRAPHS[backend], tokenizer.padding_id)
        return OnnxModel(graph, objective.eval(), tokenizer, str(path), **described)
    objective.to_empty(device=device)
    missing, _ = objective.load_state_dict(opened.state_dict, strict=False)
    if missing and opened.finetuned is not None:
        raise FolderError(path, f"lacks the weight '{missing[0]}', which {opened.finetuned.task} needs")
    origin = Origin.of(path, opened, objective)
    return Model(objective.eval(), tokenizer, str(path), origin=origin, **described)


def _as_trained(tokenizer: Tokenizer, opened: ModelFolder, training_data: object) -> Tokenizer:
    """The tokenizer with the special tokens and segments of the network's training."""
    if opened.config.architecture != "decoder":
        tokenizer = tokenizer.for_tasks()  # some files leave the special tokens to the code of BERT's tokenizer
    # Once every second text was fine-tuned as segment 1, whatever its tokenizer said; such a folder has no record.
    if opened.config.segments > 1 and isinstance(training_data, dict) and folders.SECOND_SEGMENT not in training_data:
        return tokenizer if tokenizer.marks_pairs else tokenizer.with_second_segment(1)
    return tokenizer


def _check_path(folder: object) -> None:
    if not isinstance(folder, str | Path) or not str(folder):
        raise FolderError("folder", f"is {inputs.short_repr(folder)}", "Give the path of a model folder")


def _graph(path: Path, name: str, padding_id: int) -> Graph:
    if not (path / name).is_file():
        how = "--onnx --int8" if name == exported.QUANTISED else "--onnx"
        raise FolderError(path, f"has no {name}", f"Export it: bertsmith export MODEL {how}")
    return Graph(file_inside(path, name), padding_id, torch.get_num_threads())


def _objective(opened: ModelFolder, config_path: Path) -> Objective:
    """The network with the heads that the folder has weights for."""
    trunk, architecture = build_network(opened.config), opened.config.architecture
    if opened.finetuned is not None and architecture in ("encoder", "decoder"):
        return _finetuned(opened, opened.finetuned, trunk, config_path)
    match architecture:
        case "encoder_decoder":
            task = _text_to_text(opened, trunk, config_path)
            return SpanCorruption(trunk, SpanCorruption.Config()) if task is None else task
        case "seq2seq":
            if task := _text_to_text(opened, trunk, config_path):
                return task
            remedy = "Fine-tune it first: bertsmith finetune lstm-attention DATA --out runs/translation"
            raise FolderError(config_path, "does not name the task of the network", remedy)
        case "recurrent":
            return RecurrentLM(trunk, RecurrentLM.Config())
        case "elmo":
            return BidirectionalLM(trunk, BidirectionalLM.Config())
        case "static":
            remedy = "They are features: bertsmith finetune FOLDER DATA --task features --out runs/tuned"
            raise FolderError(config_path, "holds word vectors and nothing that uses them", remedy)
        case "decoder":
            return CausalLM(trunk, CausalLM.Config())
        case "encoder":
            pairs: Pairs = "none"
            if {"pooler", "sentence_pair"} <= opened.parts:
                pairs = "sop" if opened.config_json.get("pairs", layout_of(opened.config).pairs) == "sop" else "nsp"
            return MaskedLM(trunk, MaskedLM.Config(pairs=pairs))


def _finetuned(opened: ModelFolder, finetuned: FinetunedTask, trunk: Network, config_path: Path) -> Task:
    """The task that a folder was fine-tuned for, with its head and with the settings that decide its predictions."""
    kind, labels = TASKS[finetuned.task], finetuned.labels
    own = opened.config_json.get("bertsmith")
    settings = own.get("settings", {}) if isinstance(own, dict) else {}
    if not isinstance(settings, dict):
        raise FolderError(config_path, f"'settings' of bertsmith is {short_repr(settings)}", "Give a table")
    config = build(settings, kind.Config, f"{config_path} [bertsmith.settings]")
    match finetuned.task:
        case "classify":
            config = replace(config, problem=finetuned.problem, pooling=finetuned.pooling)
        case "answer":
            length = opened.config.max_length
            question, overlap = min(config.max_question_length, length // 4), min(config.overlap, length // 3)
            config = replace(config, max_question_length=question, overlap=overlap)
        case "choose":
            labels = ()  # any number of endings can be compared
    return kind(trunk, config, labels)


def _text_to_text(opened: ModelFolder, trunk: Network, config_path: Path) -> TextToText | None:
    """The text-to-text task of an encoder-decoder, from our own keys of config.json: it has no head to tell it by."""
    own = opened.config_json.get("bertsmith")
    if not isinstance(own, dict) or own.get("task") != "write":
        return None
    labels = own.get("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise FolderError(config_path, f"'labels' of bertsmith is {short_repr(labels)}", "Give a list of names")
    settings = {name: value for name, value in own.items() if name not in ("task", "labels", folders.TRAINED_ON)}
    assert isinstance(trunk, EncoderDecoderNetwork)
    return TextToText(trunk, build(settings, TextToText.Config, f"{config_path} [bertsmith]"), tuple(labels))
