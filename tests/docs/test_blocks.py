"""Every command block of the README, the quickstart and the guides runs, in order, in an empty folder.

A block is run as it is printed, by the command line and the interpreter of this process. Some things are smaller than
for a reader: every training run ends after a few updates, whatever steps, epochs or budget it was given, a continued
model is measured on a few passages, and SMALLER lists the commands that are changed. A block of output holds lines that
its page's commands really print, whatever their figures; one that quotes another run follows a comment that says which.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from serving.running import running
from typer.main import get_command
from workers import made_once

from bertsmith.cli import app
from bertsmith.commands import continuation, demo_images
from bertsmith.train.clock import Clock

pytestmark = pytest.mark.slow("runs every command of the pages")

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 2  # of each training run
SMALLER = {  # a pattern in a command, and what stands there instead
    r"^bertsmith finetune transformer-tiny .*": r"\g<0> task.max_new_tokens=8",
    r"^bertsmith finetune convnet-small .*": r"\g<0> network.width=16",
}
NOT_RUN = ("pip install ",)  # installs the package that is tested
DEMO = "docs/quickstart.md"  # makes runs/demo and runs/reviews, which other pages begin with
GUIDES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("guides", "family", "reference")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    if "```bash" in path.read_text(encoding="utf-8") or folder == "guides"
]
LENT = {
    "README.md": ("docs/guides/make.md", DEMO, "docs/guides/report.md")
}  # whose data files it takes as the reader's
NEEDS = {
    "docs/guides/export.md": "transformers",
    "docs/guides/large-text.md": "ray",
    "docs/guides/embeddings.md": "sentence_transformers",
    "docs/guides/serve.md": "openai",
    "docs/guides/use-images.md": "openai",  # Hugging Face's client comes with it
}
SERVERS = re.compile(r"http://127\.0\.0\.1:80\d\d")  # where the pages say that one listens; here it is any free port
FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n+)?^```(?P<language>bash|python|text)\n(?P<block>.*?)^```$", re.M | re.S
)
QUOTED = "Output of "  # how the comment before a block begins that another run has printed


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the lines of each block of a page; output that is quoted from another run is left out."""
    found = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(language, block) for note, language, block in found if not note.startswith(QUOTED)]


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the lines that are handed to it (`<<'END'`)."""
    lines = iter(block.splitlines())
    for line in lines:
        if " <<'END'" in line:
            yield line.removesuffix(" <<'END'"), "".join(f"{text}\n" for text in iter(lines.__next__, "END"))
        elif line.strip():
            yield line, ""


def run(command: str, given: str = "") -> None:
    """Run one command in this process: `bertsmith`, and as much of a shell as the pages need."""
    for pattern, instead in SMALLER.items():
        command = re.sub(pattern, instead, command)
    match shlex.split(command):
        case ["bertsmith", *arguments]:
            get_command(app)(arguments, standalone_mode=False)  # which raises what a terminal would be told
        case ["torchrun", "--nproc-per-node", _, "-m", "bertsmith", *arguments]:
            get_command(app)(arguments, standalone_mode=False)  # in one process: tests/train/test_processes.py has more
        case ["cat", ">", name]:
            Path(name).write_text(given, encoding="utf-8")
        case ["curl", *_]:
            done = subprocess.run(["sh", "-c", f"{command} -sS --fail-with-body"], capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            print(done.stdout)
        case ["mkdir", "-p", *names]:
            for name in names:
                Path(name).mkdir(parents=True, exist_ok=True)
        case _:
            pytest.fail(f"this test cannot run: {command}")


def run_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks. A server is started in processes of its own, asked by the blocks after it, and ended at last."""
    printed, address = "", ""
    with ExitStack() as servers:
        for language, block in blocks(page):
            block = SERVERS.sub(address, block) if address and language != "text" else block
            if language == "python":
                exec(compile(block, page, "exec"), {})
            elif language == "bash" and not block.startswith(NOT_RUN):
                for command, given in commands(block):
                    if command.startswith("bertsmith serve "):
                        address = servers.enter_context(running(Path(), *shlex.split(command)[2:])).url
                    else:
                        run(command, given)
            elif language == "text":
                printed += "".join(capsys.readouterr())
                check_output(block, printed)


def check_output(block: str, printed: str) -> None:
    """That each line was printed; figures may differ, `...` stands for anything."""
    for line in block.splitlines():
        if line.strip() and not line.startswith("bertsmith "):
            pattern = re.sub(r"\d[\d,.]*", r"[\\d,.]+", re.escape(" ".join(line.split())).replace(r"\ ", r"\s+"))
            assert re.search(pattern.replace(r"\.\.\.", ".*"), printed), f"no command prints: {line}"


def write_data(page: str) -> None:
    """Only the files that a page shows."""
    for language, block in blocks(page):
        for command, given in commands(block) if language == "bash" else ():
            if command.startswith(("cat ", "mkdir ")):
                run(command, given)


@pytest.fixture(scope="module", autouse=True)
def few_updates() -> Iterator[None]:
    def progress(self: Clock, step: int, epoch: float) -> float:
        return min(1.0, step / UPDATES)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "progress", progress)
        patch.setattr(continuation, "PASSAGES", (30, 30))
        patch.setattr(demo_images, "TRAIN", 20)
        patch.setattr(demo_images, "TEST", 5)
        yield


def follow_quickstart(
    factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """The folder with the runs that the quickstart makes: it is followed once, by the worker that comes first."""

    def make(folder: Path) -> None:
        patch.chdir(folder)
        capsys.readouterr()
        run_page(DEMO, capsys)

    return made_once(factory, "quickstart", make)


COSTLY = {f"docs/guides/{name}.md" for name in ("continue", "export", "large-text", "race", "serve", "use-images")}


@pytest.mark.parametrize(
    "page",
    [DEMO, "README.md", *(pytest.param(page, marks=[pytest.mark.exhaustive] * (page in COSTLY)) for page in GUIDES)],
)
def test_every_block_of_a_page_runs(
    page: str,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    demo = follow_quickstart(tmp_path_factory, monkeypatch, capsys)
    for run_folder in (demo / "runs").iterdir():
        if page not in LENT or run_folder.name == "demo":  # the README makes the others itself
            shutil.copytree(run_folder, tmp_path / "runs" / run_folder.name)
    if page == DEMO:
        return
    monkeypatch.chdir(tmp_path)
    for lender in LENT.get(page, ()):
        write_data(lender)
    if NEEDS.get(page) == "openai":  # offline, Hugging Face's client would not even ask this machine
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    capsys.readouterr()
    run_page(page, capsys)


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        run('bertsmith fill runs/demo/model "a [MASK]" --best 3')
    with pytest.raises(Exception, match="No such command"):
        run("bertsmith neighbours runs/demo/model king")


def test_output_that_is_not_printed_is_found() -> None:
    check_output("12 training examples: ...\n", "3 training  examples: words\n")
    with pytest.raises(AssertionError, match="no command prints: 3 dev examples"):
        check_output("3 dev examples\n", "3 training examples\n")
