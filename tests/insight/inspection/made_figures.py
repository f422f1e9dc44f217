"""Figures of an inspection, made up after its format: known values in known places, and text that tries to run."""

import base64
import json
import math
import re
import zlib
from typing import Any

import numpy as np
from markupsafe import Markup

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "🙂",
    "مرحبا",
    "שלום",
    "w" * 90,
    "<img src=x onerror=alert(1)>",
    "&amp;",
]
WORDS = "the man sat on the bank of the river and thought about mon ##ey , which he did not have"
SENTENCE = re.split(" ", WORDS)
KINDS = ["previous", "next", "itself", "separator", "first", "same word", "broad", "mixed"]
STATIC = [
    ["river", 0.71],
    ["shore", 0.66],
    ["coast", 0.6],
    ["lake", 0.5],
    ["sea", 0.4],
    ["land", 0.3],
    ["a", 0.2],
    ["b", 0.1],
]

Figures = dict[str, Any]


def encoded(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values, dtype=np.uint8).tobytes(), 6)).decode()


def token_list(size: int, hostile: bool = False, mask: int | None = None) -> list[Figures]:
    """[CLS], words and pieces, [SEP]; the hostile ones first where they are wanted."""
    texts = ([*HOSTILE] if hostile else []) + SENTENCE * (size // len(SENTENCE) + 1)
    tokens = [{"text": "[CLS]", "shown": "[CLS]", "word": -1, "special": True, "start": 0, "end": 0}]
    word, end = -1, 0
    for index, text in enumerate(texts[: size - 2], 1):
        piece = text.startswith("##")
        shown = text.removeprefix("##")
        word += not piece
        start = end if piece or shown == "," or not end else end + 1
        end = start + len(shown)
        if index == mask:
            text = shown = "[MASK]"
        tokens.append({"text": text, "shown": shown, "word": word, "special": False, "start": start, "end": end})
    return [*tokens, {"text": "[SEP]", "shown": "[SEP]", "word": -1, "special": True, "start": 0, "end": 0}]


def weights(kind: str, rows: int, columns: int, strength: float) -> np.ndarray:
    """A head of one kind: `strength` of each row on its pattern, the rest on the first eight columns after the row."""
    at = np.arange(rows)
    goal = {
        "previous": np.maximum(at - 1, 0),
        "next": np.minimum(at + 1, columns - 1),
        "itself": np.minimum(at, columns - 1),
        "separator": np.full(rows, columns - 1),
        "first": np.zeros(rows, dtype=int),
        "same word": (at * 7 + 3) % columns,
    }.get(kind)
    held = np.zeros((rows, columns))
    if kind == "broad":
        held[:] = 1 / columns
        return held
    for offset in range(8):
        np.add.at(held, (at, (at + offset) % columns), 1 / 8 if goal is None else (1 - strength) / 8)
    if goal is not None:
        np.add.at(held, (at, goal), strength)
    return held


def attention(
    name: str, layers: int, heads: int, rows: int, columns: int, sides=("tokens", "tokens"), shift: int = 0
) -> Figures:
    every, thumbnails, described = [], [], []
    n, m = min(rows, 32), min(columns, 32)
    mean = np.zeros((layers, rows, columns))
    for layer in range(layers):
        held = np.zeros((heads, rows, columns))
        line = []
        for head in range(heads):
            kind = KINDS[(layer * heads + head + shift) % len(KINDS)]
            strength = 0.4 + 0.5 * head / heads
            held[head] = weights(kind, rows, columns, strength)
            entropy = float(-(held[head] * np.log(held[head] + 1e-9)).sum(-1).mean())
            distance = float(
                (held[head] * np.abs(np.subtract.outer(np.arange(rows), np.arange(columns)))).sum(-1).mean()
            )
            line.append(
                {
                    "kind": kind,
                    "share": strength,
                    "entropy": round(entropy, 3),
                    "distance": round(distance, 3) if sides[0] == sides[1] else None,
                    "special": round(float(held[head][:, [0, -1]].sum(-1).mean()), 4),
                    "shares": {name: strength if name == kind else 0.05 for name in KINDS[:6]},
                }
            )
        mean[layer] = held.mean(0)
        whole = np.round(255 * held)
        if rows > 256:  # no real head is so easily packed: as many bytes as 512 tokens of a real model
            noise = np.random.default_rng(layer).random(whole.shape, dtype=np.float32)
            whole += (whole == 0) * (noise < 0.06) * np.ceil(noise * 100)
        every.append(encoded(whole))
        r, c = np.arange(rows) * n // rows, np.arange(columns) * m // columns
        blocks = np.zeros((heads, n, m))
        np.maximum.at(blocks, (slice(None), r[:, None], c[None]), held)
        thumbnails.append(np.round(255 * blocks / blocks.max((1, 2), keepdims=True)))
        described.append(line)
    rollout = None
    if sides[0] == sides[1]:
        flow, kept = np.eye(rows), []
        for layer in range(layers):
            flow = (mean[layer] + np.eye(rows)) / 2 @ flow
            kept.append(np.round(255 * flow / flow.max(-1, keepdims=True)))
        rollout = encoded(np.stack(kept))
    return {
        "name": name,
        "rows": sides[0],
        "columns": sides[1],
        "layers": layers,
        "heads": heads,
        "size": [rows, columns],
        "weights": every,
        "thumbnails": encoded(np.stack(thumbnails)),
        "thumbnail_size": [n, m],
        "rollout": rollout,
        "heads_by": described,
    }


def top(words: list[str], step: int, layers: int) -> list[list[Any]]:
    """Five words at each layer, the first of them surer with every layer; `words[0]` comes first at the end."""
    found = []
    for layer in range(layers + 1):
        first = round(0.1 + 0.6 * layer / layers, 4)
        order = words if layer > layers // 2 else words[::-1]
        found.append(
            [[word, round(first / (rank + 1), 4)] for rank, word in enumerate(order[step % 3 :] + order[: step % 3])]
        )
    return found


def layer_names(layers: int) -> list[str]:
    return ["embeddings", *map(str, range(1, layers + 1))]


def predictions(kind: str, tokens: list[Figures], layers: int, where: str = "tokens") -> Figures:
    positions = list(range(len(tokens) - (kind == "next")))
    truths = [None if tokens[at]["text"] == "[MASK]" else tokens[at + (kind == "next")]["shown"] for at in positions]
    ranks = [
        [
            None if truth is None else max(1, round(20000 ** (1 - layer / layers))) + (at % 5) * (layer < layers)
            for layer in range(layers + 1)
        ]
        for at, truth in zip(positions, truths, strict=True)
    ]
    return {
        "kind": kind,
        "where": where,
        "layers": layer_names(layers),
        "positions": positions,
        "truths": truths,
        "top": [top([truth or "bank", "edge", "side", "shore", "end"], 0, layers) for truth in truths],
        "ranks": ranks,
        "probabilities": [[None if rank is None else round(0.7 / rank, 6) for rank in line] for line in ranks],
        "entropy": [[round(9 - 7 * layer / layers, 3) for layer in range(layers + 1)] for _ in positions],
    }


def masked(tokens: list[Figures], layers: int) -> Figures:
    positions = [at for at, token in enumerate(tokens) if not token["special"] and token["text"] != "[MASK]"][
        : 64 if len(tokens) <= 256 else 32
    ]
    change = np.zeros((len(positions), layers + 1, len(tokens)))
    for index, at in enumerate(positions):
        for layer in range(layers + 1):
            reach = np.exp(-np.abs(np.arange(len(tokens)) - at) / (0.4 + layer / 2))
            change[index, layer] = np.round(
                255 * np.where(np.arange(len(tokens)) == at, 0.9, 0.6 * reach * layer / layers)
            )
    return {
        "positions": positions,
        "layers": layer_names(layers),
        "top": [top([tokens[at]["shown"], "edge", "side", "shore", "end"], 0, layers) for at in positions],
        "ranks": [[max(1, 4 ** (layers - layer)) for layer in range(layers + 1)] for _ in positions],
        "probabilities": [
            [round(0.5 / max(1, 4 ** (layers - layer)), 8) for layer in range(layers + 1)] for _ in positions
        ],
        "change": encoded(change),
    }


def attribution(name: str, tokens: list[Figures], shift: int = 0) -> Figures:
    scores = [
        0.0 if token["special"] else round(math.sin(1.7 * at + shift) * (0.9 if at == 4 else 0.3), 4)
        for at, token in enumerate(tokens)
    ]
    words: dict[int, list[Any]] = {}
    for token, score in zip(tokens, scores, strict=True):
        if token["word"] >= 0:
            entry = words.setdefault(token["word"], ["", 0.0])
            entry[0] += token["shown"]
            entry[1] = round(entry[1] + score, 4)
    return {
        "name": name,
        "target": {"label": name},
        "scores": scores,
        "words": list(words.values()),
        "output": 0.97,
        "baseline": 0.12,
        "gap": 0.0123,
        "steps": 64,
    }


def reading(model: int, text: int, tokens: list[Figures], layers: int, heads: int, shift: int = 0) -> Figures:
    size = len(tokens)
    return {
        "model": model,
        "text": text,
        "tokens": tokens,
        "targets": None,
        "attentions": [attention("self-attention", layers, heads, size, size, shift=shift)],
        "predictions": predictions("masked", tokens, layers),
        "masked": masked(tokens, layers),
        "attributions": [
            attribution("label: positive (0.97)", tokens),
            attribution("label: negative (0.03)", tokens, 2),
        ],
        "neighbours": {
            "static": [None if token["special"] else STATIC for token in tokens],
            "contextual": [
                [[(at + 3) % size, 0.91], [(at + 5) % size, 0.8], [(at + 7) % size, 0.7]] for at in range(size)
            ],
        },
        "notes": ["The text has 700 tokens, the first 512 are shown."] if size == 512 else [],
    }


def translated(tokens: list[Figures], layers: int, heads: int) -> Figures:
    """What an encoder-decoder's reading has: two sides, three kinds of attention."""
    targets = token_list(8)[1:]
    rows, columns = len(targets), len(tokens)
    sides = {
        "encoder": ("tokens", "tokens"),
        "decoder": ("targets", "targets"),
        "cross-attention": ("targets", "tokens"),
    }
    sizes = {"encoder": (columns, columns), "decoder": (rows, rows), "cross-attention": (rows, columns)}
    return {
        **reading(0, 0, tokens, layers, heads),
        "targets": targets,
        "attentions": [attention(name, layers, heads, *sizes[name], sides=sides[name]) for name in sides],
        "predictions": predictions("next", targets, layers, "targets"),
        "masked": None,
        "neighbours": None,
        "attributions": [],
    }


def comparison(a: int, b: int, tokens: list[Figures], layers: int, heads: int) -> Figures:
    """Two texts that differ in token 6, whose distance starts there and spreads."""
    size, odd = len(tokens), min(6, len(tokens) - 2)
    pairs = [[at, at] for at in range(size) if at != odd]
    distance = [
        [min(255, round(255 * layer / layers / (1 + abs(i - odd)))) for i, _ in pairs] for layer in range(layers + 1)
    ]
    heads_by = [[round(0.02 + 0.9 * (layer == 1 and head == 1), 3) for head in range(heads)] for layer in range(layers)]
    differ = [
        ["river (8)", [["river", 0.5], ["sea", 0.2], ["lake", 0.1]], [["shore", 0.4], ["river", 0.3], ["sea", 0.1]]]
    ]
    return {
        "a": a, "b": b, "what": "texts", "pairs": pairs, "only_a": [odd], "only_b": [odd],
        "layers": layer_names(layers),
        "distance": encoded(np.array(distance)), "heads": heads_by, "scores": [-21.5, -24.7], "predictions": differ,
    }  # fmt: skip


def point_map(models: int, points: int = 60) -> Figures:
    labels, methods = ["river", "money", "seat"], ["PCA", "t-SNE"]
    drawn = np.random.default_rng(3)
    centres = np.array([[0, 0], [6, 1], [2, 5]])[np.arange(points) % 3]
    held = []
    for index in range(points):
        text = f"the {labels[index % 3]} bank number {index}"
        start = text.index("bank")
        held.append({"text": text, "mark": [start, start + 4], "label": labels[index % 3], "model": 0})
    coordinates = {
        str(model): {
            method: (centres * (1 + model) + drawn.normal(size=(points, 2))).round(4).tolist() for method in methods
        }
        for model in range(models)
    }
    return {
        "what": "occurrences of 'bank'",
        "methods": methods,
        "points": held,
        "coordinates": coordinates,
        "labels": labels,
        "explained": {str(model): [0.41, 0.17] for model in range(models)},
    }


def figures(
    size: int = 12, layers: int = 2, heads: int = 2, models: int = 1, texts: int = 1, hostile: bool = False
) -> Figures:
    """An inspection: every model reads every text. The first text has a [MASK]; the second differs in one token."""
    readings = []
    for model in range(models):
        for text in range(texts):
            tokens = token_list(size, hostile, mask=None if text or size < 9 else 8 + hostile)
            if text:
                tokens[min(6, size - 2)] |= {"text": "table", "shown": "table"}
            readings.append(reading(model, text, tokens, layers, heads, shift=model))
    described = {
        "kind": "bert",
        "architecture": "encoder",
        "layers": layers,
        "heads": heads,
        "width": 64 * heads,
        "parameters": 109_482_240,
        "purpose": "masked language model",
    }
    compared = [comparison(0, 1, readings[0]["tokens"], layers, heads)] if texts > 1 else []
    return {
        "format": 1,
        "models": [
            {"name": f"step {10 ** (model + 1)}" if models > 1 else "bert-base", **described} for model in range(models)
        ],
        "texts": [" ".join(token["shown"] for token in readings[text]["tokens"][1:-1]) for text in range(texts)],
        "readings": readings,
        "comparisons": compared,
        "map": point_map(models),
    }


def embedded(held: Figures) -> Markup:
    """As it stands in the page's script element."""
    text = json.dumps(held, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
