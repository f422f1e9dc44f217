"""Words of a text with their bounds, and tagged words joined to entities."""

from typing import Any

from bertsmith.data.labelled.words import Span, words_with_spans


def words_of(value: str | list[str]) -> list[Span]:
    """The words of a text, split at white space and punctuation as for training; or words that are split already.

    Their bounds are -1 where only words are known.
    """
    if isinstance(value, list):
        return [(word, -1, -1) for word in value]
    return words_with_spans(value)


def tagged(prediction: dict[str, Any], words: list[Span]) -> dict[str, Any]:
    """A prediction with the entities that its tags spell."""
    return prediction | {"entities": entities(prediction["tags"], prediction["probabilities"], words)}


def entities(tags: list[str], probabilities: list[float | None], words: list[Span]) -> list[dict[str, Any]]:
    """Neighbouring words of one kind, begun anew at every B-; each with the mean probability of its words.

    Tags without B- and I-, such as parts of speech, make an entity of every word.
    """
    found: list[dict[str, Any]] = []
    open_label = ""
    sums: list[list[float]] = []
    for number, (tag, probability, (word, start, end)) in enumerate(zip(tags, probabilities, words, strict=True)):
        prefix, dash, label = tag.partition("-")
        if not (dash and prefix in ("B", "I")):
            prefix, label = "B", "" if tag == "O" else tag
        if label and prefix == "I" and label == open_label:
            found[-1] |= {"end": end, "last": number}
            found[-1]["words"].append(word)
            sums[-1].append(probability or 0.0)
        elif label:
            found.append({"label": label, "words": [word], "start": start, "end": end, "first": number, "last": number})
            sums.append([probability or 0.0])
        open_label = label
    for entity, each in zip(found, sums, strict=True):
        entity["probability"] = sum(each) / len(each)
        if entity["start"] < 0:
            del entity["start"], entity["end"]
    return found
