"""The page for people in real Chromium, before a running server: typed at, clicked, and read."""

import base64
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inference import photos
from inference.test_load import plain, saved
from serving.running import RunningServer, running

from bertsmith.inference.model import Model

pytestmark = pytest.mark.slow("drives a browser")

KEY = "a-long-secret"
PHOTOS = "photos"  # a model of images
HOSTILE = "<script>alert(1)</script>"  # the name of a model, too
TABS = {
    "plain": ["fill", "similarity", "rerank", "score", "tokenize", "inspect"],
    "reviews": ["predict", "similarity", "rerank", "tokenize", "inspect"],
    "number": ["predict", "similarity", "rerank", "tokenize", "inspect"],
    "labels": ["predict", "similarity", "rerank", "tokenize", "inspect"],
    "ner": ["tag", "similarity", "rerank", "tokenize", "inspect"],
    "squad": ["answer", "similarity", "rerank", "tokenize", "inspect"],
    "swag": ["choose", "similarity", "rerank", "tokenize", "inspect"],
    "gpt": ["generate", "similarity", "rerank", "score", "tokenize", "inspect"],
    "translator": ["translate", "generate", "similarity", "rerank", "tokenize", "inspect"],
    HOSTILE: ["predict", "similarity", "rerank", "tokenize", "inspect"],
}


class Page:
    """The page in the browser, with what it asked for and what went wrong."""

    def __init__(self, context: Any, url: str, place: str = "") -> None:
        self.url, self.context = url, context
        self.requests: list[str] = []
        self.trouble: list[str] = []
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.watch(self.page)
        self.page.goto(f"{url}/{place}")

    def watch(self, page: Any) -> None:
        """What a page complains of is trouble, except that a status is not 200."""
        page.on("console", lambda message: "status of 4" in message.text or self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("dialog", lambda dialog: (self.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def close(self) -> None:
        assert self.trouble == [], self.trouble
        foreign = [one for one in self.requests if not one.startswith((f"{self.url}/", f"blob:{self.url}/", "data:"))]
        assert foreign == []

    def texts(self, selector: str) -> list[str]:
        return [" ".join(text.split()) for text in self.page.locator(selector).all_inner_texts()]

    def text(self, selector: str) -> str:
        return self.texts(selector)[0]

    def type(self, name: str, value: str) -> None:
        self.page.locator(f"[name={name}]").fill(value)

    def settle(self) -> None:
        self.page.wait_for_selector(".answer:not([aria-busy]) .shell")

    def enter(self) -> None:
        self.page.locator("textarea").first.press("Enter")
        self.settle()

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name, exact=True).click()

    @property
    def curl(self) -> str:
        return str(self.page.locator(".shell pre").inner_text())


Open = Callable[..., Page]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, writing_models: dict[str, Model]) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    kinds = {"reviews": "class", "number": "number", "labels": "labels"}
    kinds |= {"ner": "tag", "squad": "answer", "swag": "choose"}
    paths = {"plain": plain(folder / "plain")}
    paths |= {name: saved(folder / name, kind) for name, kind in kinds.items()}
    paths |= {name: Path(model.path) for name, model in writing_models.items()}
    paths[HOSTILE] = paths["reviews"]
    paths[PHOTOS] = photos.model(folder / PHOTOS)
    with running(folder, *(f"{name}={path}" for name, path in paths.items())) as one:
        yield one


@pytest.fixture
def visit(browser: Any, server: RunningServer) -> Iterator[Open]:
    """Opens the page at a model and a verb; at the end nothing was loaded from elsewhere, and nothing complained."""
    opened: list[Page] = []

    def visited(place: str = "", *, url: str = server.url, width: int = 1100) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900})
        opened.append(Page(context, url, place))
        return opened[-1]

    yield visited
    for one in opened:
        one.close()
        one.context.close()


def asked(server: RunningServer, path: str, body: Any) -> Any:
    status, found = server.ask(path, body)
    assert status == 200, found
    return found


def percent(share: float) -> str:
    """As the page writes it."""
    if 0 < share < 0.005:
        return f"{float(f'{100 * share:.0e}'):g} %"
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"


# ---- what is shown at first ----


@pytest.mark.exhaustive
def test_an_image_is_dropped_and_its_classes_are_shown(visit: Open, server: RunningServer, tmp_path: Path) -> None:
    folder = photos.images(tmp_path / "images")
    page = visit(f"#{PHOTOS}/predict")
    page.page.wait_for_selector("input[type=file]")
    assert page.texts("#verbs button") == ["predict", "inspect"]
    drop = """async (field, encoded) => {
      const bytes = Uint8Array.from(atob(encoded), (one) => one.charCodeAt(0));
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([bytes], "cat.png", { type: "image/png" }));
      field.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
    }"""
    content = base64.b64encode((folder / "cat.png").read_bytes()).decode()
    page.page.locator(".drop").evaluate(drop, content)
    page.settle()
    found = asked(server, "/predict", {"inputs": content, "model": PHOTOS})
    expected = [f"{label} {percent(share)}" for label, share in found["probabilities"].items()]
    assert page.texts(".answer .guess") == expected
    assert page.page.locator(".drop img").evaluate("(image) => image.naturalWidth") == 30
    assert page.curl.endswith(f"/predict -F image=@photo.jpg -F 'model={PHOTOS}'")
    with page.context.expect_page() as opened:
        page.tab("inspect")
        page.page.locator("input[type=file]").set_input_files(folder / "dog.png")
    page.watch(opened.value)
    opened.value.wait_for_selector("body[data-settled]", state="attached")
    assert "class token looks" in opened.value.locator(".status").inner_text()


def test_enter_fills_the_blank_of_the_example(visit: Open, server: RunningServer) -> None:
    page = visit()
    page.page.wait_for_selector("textarea")
    assert page.text("h1") == "plain"
    page.page.keyboard.press("Enter")
    page.settle()
    found = asked(server, "/fill", {"inputs": "She opened the [MASK] and went into the room.", "model": "plain"})
    words = [f"{one['word']} {percent(one['probability'])}" for one in found["blanks"][0]]
    assert page.texts(".blank-words .guess") == words
    width = "(bars) => bars.map((bar) => parseFloat(bar.style.width) / 100)"
    widths = page.page.locator(".blank-words i").evaluate_all(width)
    assert widths == pytest.approx([one["probability"] for one in found["blanks"][0]], abs=1e-4)


def test_a_model_has_the_tabs_of_what_it_can_do_and_each_shows_something(visit: Open) -> None:
    page = visit()
    page.page.wait_for_selector("textarea")
    assert page.page.locator("#models option").all_inner_texts() == [*TABS, PHOTOS]
    for name, tabs in TABS.items():
        page.page.locator("#models select").select_option(label=name)
        assert page.texts("[role=tab]") == tabs
        for tab in tabs[:-1]:
            page.tab(tab)
            page.page.locator(".ask .run").click()
            page.settle()
            assert page.page.locator("[role=alert]:visible").count() == 0, (name, tab, page.texts("[role=alert]"))
            assert page.page.locator(".answer > *").count() >= 2


@pytest.mark.exhaustive
def test_a_narrow_window_does_not_scroll_sideways(visit: Open) -> None:
    page = visit(width=380)
    page.page.wait_for_selector("textarea")
    wide = "document.documentElement.scrollWidth"
    for name in ("plain", "ner", "squad", "gpt"):
        page.page.locator("#models select").select_option(label=name)
        for tab in TABS[name][:-1]:
            page.tab(tab)
            page.page.locator("textarea").first.fill("a-word-without-an-end" * 8 + " [MASK]")
            page.page.locator(".ask .run").click()
            page.settle()
            assert page.page.evaluate(wide) <= 380, (name, tab)


def test_a_keyboard_is_enough_and_the_address_keeps_what_is_chosen(visit: Open) -> None:
    page = visit("#ner/similarity")
    page.page.wait_for_selector("textarea")
    assert page.text("[role=tab][aria-selected=true]") == "similarity"
    page.page.locator("[role=tab][aria-selected=true]").focus()
    page.page.keyboard.press("ArrowLeft")
    assert page.text("[role=tab][aria-selected=true]") == "tag"
    assert page.page.evaluate("document.activeElement.innerText") == "tag"
    assert page.page.evaluate("location.hash") == "#ner/tag"
    page.page.keyboard.press("Tab")
    page.page.keyboard.type("the cat")
    page.page.keyboard.press("Shift+Enter")
    page.page.keyboard.type("sees")
    assert page.page.locator("textarea").input_value().endswith("the cat\nsees")
    page.page.keyboard.press("Enter")
    page.settle()
    page.page.reload()
    page.page.wait_for_selector("textarea")
    assert (page.text("h1"), page.text("[role=tab][aria-selected=true]")) == ("ner", "tag")


# ---- answers ----


def test_another_word_can_be_put_into_each_blank(visit: Open, server: RunningServer) -> None:
    page = visit("#plain/fill")
    page.type("text", "the [MASK] sees a [MASK] .")
    page.enter()
    blanks = asked(server, "/fill", {"inputs": "the [MASK] sees a [MASK] .", "model": "plain"})["blanks"]
    first, second = ([one["word"] for one in blank] for blank in blanks)
    assert page.text(".answer .running") == f"the {first[0]} sees a {second[0]} ."
    page.page.locator(".blank-words").nth(1).locator("button").nth(2).click()
    assert page.text(".answer .running") == f"the {first[0]} sees a {second[2]} ."
    page.page.get_by_role("button", name="add [MASK]").click()
    assert page.page.locator("textarea").input_value().endswith("[MASK]")


@pytest.mark.exhaustive
def test_classes_labels_and_numbers_are_those_of_the_server(visit: Open, server: RunningServer) -> None:
    page = visit("#reviews/predict")
    page.type("text", "the old cat")
    page.type("second", "sees the dog")
    page.enter()
    [found] = asked(server, "/predict", {"inputs": [["the old cat", "sees the dog"]], "model": "reviews"})
    ranked = sorted(found["probabilities"].items(), key=lambda pair: -pair[1])
    assert page.texts(".bars .guess") == [f"{label} {percent(share)}" for label, share in ranked]
    assert page.texts(".bars .right") == page.texts(".bars .guess")[:1]
    page = visit("#labels/predict")
    page.enter()
    found = asked(server, "/predict", {"inputs": "A film to see twice.", "model": "labels"})
    assert {text.split()[0] for text in page.texts(".bars .right")} == set(found["labels"])
    page = visit("#number/predict")
    page.enter()
    found = asked(server, "/predict", {"inputs": "A film to see twice.", "model": "number"})
    assert float(page.text(".figure").replace("−", "-")) == pytest.approx(found["number"], rel=1e-3)


def test_tags_stand_over_their_words_also_after_an_emoji(visit: Open, server: RunningServer) -> None:
    page = visit("#ner/tag")
    text = "🦊🦊 the old cat sees a river , 1984"
    page.type("text", text)
    page.enter()
    entities = asked(server, "/tag", {"inputs": text, "model": "ner"})["entities"]
    assert entities
    assert page.texts(".running mark bdi") == [text[one["start"] : one["end"]] for one in entities]
    assert page.texts(".running mark small") == [one["label"] for one in entities]
    bare = "(running) => (running.querySelectorAll('small').forEach((one) => one.remove()), running.textContent)"
    assert page.page.locator(".answer .running").evaluate(bare) == text


def test_an_answer_is_marked_in_its_context_and_so_is_another(visit: Open, server: RunningServer) -> None:
    page = visit("#squad/answer")
    context = "🦊 the old cat sees the green river in the garden"
    page.type("question", "who sees the river ?")
    page.type("context", context)
    page.enter()
    body = {"inputs": {"question": "who sees the river ?", "context": context}, "model": "squad"}
    spans = asked(server, "/answer", body)["spans"]
    assert page.text("mark") == " ".join(spans[0]["answer"].split())
    assert page.text(".answer .running") == context
    page.page.locator(".bars button").nth(1).click()
    assert page.text("mark") == " ".join(spans[1]["answer"].split())
    assert page.texts(".bars [aria-pressed=true]") == [page.texts(".bars button")[1]]


def test_texts_are_sorted_by_similarity(visit: Open, server: RunningServer) -> None:
    page = visit("#plain/similarity")
    texts = ["a dog", "the cat", "1984 ."]
    page.type("text", "the cat")
    page.type("texts", "\n".join([*texts, ""]))
    page.enter()
    cosines = asked(
        server, "/similarity", {"inputs": {"source_sentence": "the cat", "sentences": texts}, "model": "plain"}
    )
    ranked = sorted(zip(texts, cosines, strict=True), key=lambda pair: -pair[1])
    assert page.texts(".bars .guess") == [f"{text} {score:.3f}".replace("-", "−") for text, score in ranked]
    assert ranked[0][0] == "the cat"


def test_every_token_is_shaded_by_its_probability(visit: Open, server: RunningServer) -> None:
    page = visit("#plain/score")
    page.type("text", "the unbelievable cat")
    page.enter()
    logs = asked(server, "/score", {"inputs": "the unbelievable cat", "model": "plain"})["token_log_probabilities"]
    shares = page.page.locator(".scored").evaluate_all(
        "(all) => all.map((one) => +one.style.getPropertyValue('--share'))"
    )
    assert shares == pytest.approx([min(1, -log / 8) for log in logs], abs=1e-3)
    assert page.text(".answer .running") == "the unbelievable cat"
    page.page.locator(".scored").first.hover()
    assert page.text(".reading").startswith("the has a probability of ")


def test_texts_and_tokens_are_written_out(visit: Open, server: RunningServer) -> None:
    page = visit("#gpt/generate")
    page.type("text", "the cat")
    page.type("samples", "2")
    page.type("tokens", "5")
    page.enter()
    body = {"inputs": "the cat", "max_new_tokens": 5, "samples": 2, "model": "gpt"}
    made = [" ".join(text.split()) for text in asked(server, "/generate", body)["texts"]]
    assert page.texts(".answer .running") == made
    page.tab("tokenize")
    page.type("text", "the cat")
    page.enter()
    [tokens] = asked(server, "/tokenize", {"inputs": "the cat", "model": "gpt"})
    assert page.texts(".chip") == [f"{one['text']} {one['id']}" for one in tokens]


@pytest.mark.exhaustive
def test_the_page_of_a_text_opens_in_a_new_tab_and_draws_itself(visit: Open) -> None:
    page = visit("#plain/inspect")
    page.type("text", "the old [MASK] sees")
    with page.context.expect_page() as opened:
        page.enter()
    page.watch(opened.value)
    opened.value.wait_for_selector("body[data-settled]", state="attached")
    assert opened.value.locator("h1").inner_text() == "Inside plain"
    assert opened.value.locator("#overview .head").count() == 8
    with page.context.expect_page() as again:
        page.page.get_by_role("link", name="Open the page").click()
    again.value.wait_for_selector("body[data-settled]", state="attached")


# ---- what goes wrong ----


def test_an_error_of_the_server_is_a_line(visit: Open) -> None:
    page = visit("#plain/fill")
    page.type("text", "the cat")
    page.enter()
    assert page.texts("[role=alert]:visible") == [
        "'the cat': has no blank to fill. Write [MASK] where a word is missing."
    ]
    page.type("text", "the [MASK]")
    page.enter()
    assert page.texts("[role=alert]:visible") == []


def test_hostile_texts_and_names_are_only_text(visit: Open) -> None:
    hostile = "<script>alert(1)</script> <img src=x onerror=alert(2)> [MASK] ' \" \u202e"
    page = visit()
    page.page.wait_for_selector("textarea")
    for name in (HOSTILE, "plain", "ner", "squad", "gpt"):
        page.page.locator("#models select").select_option(label=name)
        assert page.text("h1") == name
        for tab in TABS[name][:-1]:
            page.tab(tab)
            for field in page.page.locator("textarea").all():
                field.fill(hostile)
            page.page.locator(".ask .run").click()
            page.settle()
            assert "<script>alert(1)" in page.curl
    assert page.page.locator("main img, main script").count() == 0


def test_the_line_of_curl_gives_the_same(visit: Open, server: RunningServer) -> None:
    page = visit("#ner/tag")
    page.type("text", 'the cat\'s "river" $HOME `x`\n\\ 1984 é')
    page.enter()
    assert shlex.split(page.curl)[:2] == ["curl", f"{server.url}/tag"]
    answered = subprocess.run(["sh", "-c", f"{page.curl} -s"], check=True, capture_output=True).stdout
    words = [f"{' '.join(one['words'])} · {one['label']}" for one in json.loads(answered)["entities"]]
    assert words
    assert page.texts(".bars .guess span:first-child") == words


def test_a_server_that_is_gone_is_named(visit: Open, server: RunningServer) -> None:
    page = visit("#plain/tokenize")
    page.page.wait_for_selector("textarea")
    page.page.route("**/tokenize", lambda route: route.abort())
    page.enter()
    assert page.texts("[role=alert]:visible") == ["server: does not answer. Look whether it is running."]
    assert "ERR_FAILED" in page.trouble.pop()


def test_a_key_is_asked_for_and_kept_in_memory_only(visit: Open, server: RunningServer, tmp_path: Path) -> None:
    folder = plain(tmp_path / "guarded")
    with running(tmp_path, str(folder), BERTSMITH_KEY=KEY) as guarded:
        page = visit(url=guarded.url)
        field = page.page.locator("input[name=key]")
        field.wait_for()
        assert "guarded" not in page.page.content()
        assert page.texts("[role=alert]:visible") == []
        field.fill("a-wrong-secret")
        field.press("Enter")
        page.page.wait_for_selector("#trouble:visible")
        assert page.text("#trouble").startswith("key: is not the server's.")
        field.fill(KEY)
        field.press("Enter")
        page.page.wait_for_selector("textarea")
        page.enter()
        assert page.text("h1") == "guarded"
        assert '-H "Authorization: Bearer $BERTSMITH_KEY"' in page.curl
        assert KEY not in page.page.content()
        assert page.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.page.reload()
        page.page.locator("input[name=key]").wait_for()
