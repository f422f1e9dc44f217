"""Requests that a client may send by mistake or in malice, drawn from the server's own description of its routes."""

import json
import random
from typing import Any

TEXTS = [
    *("", "x", "the cat sees the [MASK] .", "[MASK]", "\0", "\n" * 50, "ü" * 300, "🦊", "\u202eabc", "[CLS][SEP]"),
    *("cat " * 400, "a: b. c: d.", " [MASK] " * 40),
]
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    -1e308,
    2e3,
    1e-39,
    5e-324,
    True,
    False,
]
ODD: list[Any] = [None, [], {}, [[]], [None], "", {"": ""}, [{}], [1, "x"], {"inputs": {}}, [[[["x"]]]]]
RAW = [
    *(
        b"",
        b"null",
        b"[1e999]",
        b'{"inputs": 1e999}',
        b'{"inputs": NaN}',
        b'{"inputs": -Infinity}',
        b"\xff\xfe{}",
        b"{",
    ),
    *(b'{"inputs": "\\ud800"}', b'{"inputs": "a", "inputs": "b"}', b"[" * 100_000, b'{"a":' * 50_000, b'{"x": 1}\0'),
    *(b'{"inputs": 0e99999999999}', b'{"top_k": 1' + b"0" * 5_000 + b"}", b"\xef\xbb\xbf{}", b'"' + b"x" * 9_000),
]


MODELS = ["plain", "ner", "squad", "reviews", "gpt", "translator", "", "%", "a/b"]


class Fuzzer:
    """Random requests: valid by the schema, and then often spoilt."""

    def __init__(self, document: dict[str, Any], seed: int = 0) -> None:
        self.dice, self.document = random.Random(seed), document
        self.routes = [
            (method.upper(), path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        ]

    def request(self) -> tuple[str, str, bytes]:
        """Method, path and body."""
        method, path, operation = self.dice.choice(self.routes)
        for parameter in operation.get("parameters", []):
            values = ["plain", "ner", "nobody", "fill-mask", "feature-extraction", "text-classification", "..", "", "ü"]
            path = path.replace("{" + parameter["name"] + "}", self.dice.choice(values))
        if self.dice.random() < 0.3:
            path = f"/models/{self.dice.choice(MODELS)}{path}"
        if self.dice.random() < 0.05:
            method = self.dice.choice(["PUT", "DELETE", "HEAD", "OPTIONS", "GET", "POST", "BREW"])
        if "requestBody" not in operation:
            return method, path, b""
        if self.dice.random() < 0.1:
            return method, path, self.dice.choice(RAW)
        value = self.value(operation["requestBody"]["content"]["application/json"]["schema"])
        while self.dice.random() < 0.4:
            value = self.spoil(value)
        content = json.dumps(value).encode()
        if self.dice.random() < 0.05:
            place = self.dice.randrange(len(content) + 1)
            content = content[:place] + self.dice.choice([b"", b"\0", b"}", b'"', b"\xc3"]) + content[place + 1 :]
        return method, path, content

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        """A value that a schema allows."""
        if "$ref" in schema:
            return self.value(self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], depth)
        if "anyOf" in schema:
            return self.value(self.dice.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return self.dice.choice(schema["enum"])
        match schema.get("type"):
            case "object" if "properties" in schema:
                required = schema.get("required", [])
                chosen = [name for name in schema["properties"] if name in required or self.dice.random() < 0.4]
                return {name: self.named(name, schema["properties"][name], depth) for name in chosen}
            case "object":
                words = self.dice.sample(["text", "question", "context", "second", "top_k", "endings", "x"], 2)
                return {word: self.value({"type": "string"}, depth) for word in words}
            case "array":
                least = schema.get("minItems", 0)
                count = self.dice.randint(least, max(least, min(schema.get("maxItems", 4), 4)))
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return self.dice.choice(TEXTS)
            case "integer" if self.dice.random() < 0.1:
                return schema.get("maximum", 2**63)
            case "integer":
                return self.dice.randint(schema.get("minimum", 0), min(schema.get("maximum", 9), 9))
            case "number":
                bounds = [
                    schema.get("minimum", -1e308),
                    schema.get("maximum", 1e308),
                    schema.get("exclusiveMinimum", 0),
                ]
                return self.dice.choice([0.5, 1.0, *bounds, *(one for one in NUMBERS if isinstance(one, float))])
            case "boolean":
                return self.dice.random() < 0.5
            case "null":
                return None
        return self.dice.choice([*TEXTS, *ODD])  # anything

    def named(self, name: str, schema: dict[str, Any], depth: int) -> Any:
        if name == "model":
            return self.dice.choice(["plain", "reviews", "ner", "squad", "gpt", "translator", "nobody", None])
        return self.value(schema, depth)

    def spoil(self, value: Any) -> Any:
        """The same with one part of another kind, missing, or unknown."""
        if isinstance(value, dict) and value and self.dice.random() < 0.8:
            name = self.dice.choice(list(value))
            match self.dice.randrange(4):
                case 0:
                    return {key: one for key, one in value.items() if key != name}
                case 1:
                    return value | {self.dice.choice(["inputs", "parameters", "x", "top_k"]): self.dice.choice(ODD)}
            return value | {name: self.spoil(value[name])}
        if isinstance(value, list) and value and self.dice.random() < 0.7:
            place = self.dice.randrange(len(value))
            return [*value[:place], self.spoil(value[place]), *value[place + 1 :]]
        return self.dice.choice([*TEXTS, *NUMBERS, *ODD])
