"""Every public call with values of a wrong type: each raises one of our errors, in one line, and never Python's own."""

import sys
from pathlib import Path
from typing import Any

import bertsmith

ODD: list[Any] = [None, 7, 1.5, b"bytes", object(), [7], [None], ["a", 7], {"a": 1}, [[]], (), "", [""]]


def main(folder: Path) -> None:
    base, taught = (bertsmith.load(str(folder / name), device="cpu") for name in ("base", "taught"))
    calls: dict[str, Any] = {f"load({odd!r})": lambda odd=odd: bertsmith.load(odd) for odd in ODD}
    for model, names in (
        (base, ("fill", "score", "embed", "generate", "translate")),
        (taught, ("predict", "classify")),
    ):
        for name in (*names, "predict", "tag", "answer", "choose", "save"):
            for odd in ODD if name != "save" else [None, 7, ""]:
                calls[f"{name}({odd!r}) {model.task}"] = lambda model=model, name=name, odd=odd: getattr(model, name)(
                    odd
                )
    for odd in ODD:
        calls[f"make({odd!r})"] = lambda odd=odd: bertsmith.make(odd, str(folder / "never"))
        calls[f"make out {odd!r}"] = lambda odd=odd: bertsmith.make("nowhere.txt", odd)
        calls[f"pretrain({odd!r})"] = lambda odd=odd: bertsmith.pretrain(odd)
        calls[f"pretrain data {odd!r}"] = lambda odd=odd: bertsmith.pretrain(
            "bert-tiny", data=odd, out=str(folder / "x"), overrides=["data.folder=nowhere"]
        )
        calls[f"pretrain steps {odd!r}"] = lambda odd=odd: bertsmith.pretrain("bert-tiny", steps=odd, data="nowhere")
        calls[f"finetune({odd!r})"] = lambda odd=odd: bertsmith.finetune(odd, "nowhere.csv", out=str(folder / "y"))
        calls[f"finetune data {odd!r}"] = lambda odd=odd: bertsmith.finetune("base", odd, out=str(folder / "y"))
        calls[f"evaluate({odd!r})"] = lambda odd=odd: bertsmith.evaluate(odd, "nowhere.csv")
    calls["top_k"] = lambda: base.fill("a [MASK]", top_k=0)
    calls["layers"] = lambda: base.embed("a", layers=[99])
    calls["layres"] = lambda: base.embed("a", layres=[1])
    calls["pooling"] = lambda: base.embed("a", pooling="max")
    calls["layers text"] = lambda: base.embed("a", layers="last")
    calls["pll_form"] = lambda: base.score("a", pll_form="odd")
    calls["device"] = lambda: bertsmith.load(str(folder / "base"), device=7)
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except bertsmith.BertsmithError as error:
            print(error)
            if "\n" in str(error):
                wrong.append(f"{name}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


main(Path(sys.argv[1]))
