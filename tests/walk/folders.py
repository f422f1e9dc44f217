"""Ten folders of text as people have them: one big file, fifty lines, five languages, a mess, code, old encodings."""

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random

# A noun decides its verb and its place, so that a model can learn more than how often each word stands.
ENGLISH = {
    "The baker": ("sells bread", "in the small shop near the river."),
    "The captain": ("steers the ship", "across the cold and stormy sea."),
    "The teacher": ("reads a book", "to the children in the school."),
    "The farmer": ("milks the cows", "before the sun is in the sky."),
    "The doctor": ("helps the sick", "in the white house on the hill."),
    "The painter": ("mixes colours", "under the window of his room."),
}
GERMAN = {
    "Der Händler": ("öffnet sein Geschäft", "früh am Morgen in der Straße."),
    "Die Bäckerin": ("verkauft schöne Brötchen", "an die müden Gäste."),
    "Der Kapitän": ("führt das große Schiff", "über die kühle See."),
    "Die Ärztin": ("prüft die Schutzausrüstung", "für die Übung im Gebäude."),
}
TURKISH = {
    "Yaşlı adam": ("gölün kıyısında", "balık tutmayı çok seviyordu."),
    "Küçük kız": ("ılık sütü", "içip uyudu."),
    "Öğretmen": ("öğrencilere şiiri", "yavaşça okudu."),
    "Işıklı sokakta": ("on kişi", "öl ve ol demeden yürüdü."),
}
CHINESE = {
    "老师": ("在学校", "给孩子们读一本书。"),
    "船长": ("在海上", "驾驶一条大船。"),
    "农夫": ("在早晨", "给牛挤奶。"),
    "医生": ("在山上的白房子里", "帮助病人。"),
    "木匠": ("用旧木头", "做四张结实的桌椅。"),
}
ARABIC = {
    "المعلم": ("يقرأ كتابا", "للأطفال في المدرسة."),
    "القبطان": ("يقود السفينة", "عبر البحر البارد."),
    "الفلاح": ("يحلب الأبقار", "قبل شروق الشمس."),
    "الطبيب": ("يساعد المرضى", "في البيت الأبيض."),
}
CODE = '''"""A module about {name}."""


def {name}(value: int, times: int = {number}) -> int:
    """Add {number} to a value, again and again."""
    for index in range(times):
        value += {number} * index
    return value
'''


def sentences(language: dict[str, tuple[str, str]], count: int, seed: int = 0, join: str = " ") -> list[str]:
    """Sentences of a small world. A number in some of them keeps the lines from being all alike."""
    chance, subjects = Random(seed), list(language)
    found = []
    for index in range(count):
        subject = chance.choice(subjects)
        verb, place = language[subject]
        other = chance.choice(subjects)
        parts = [subject, verb, place] if chance.random() < 0.8 else [subject, verb, place, f"{other} {index}."]
        found.append(join.join(parts))
    return found


def one_big_file(folder: Path) -> list[str]:
    (folder / "corpus.txt").write_text("\n".join(sentences(ENGLISH, 2_000)), encoding="utf-8")
    return [str(folder / "corpus.txt")]


def fifty_lines(folder: Path) -> list[str]:
    (folder / "few.txt").write_text("\n".join(sentences(ENGLISH, 50)), encoding="utf-8")
    return [str(folder)]


def _language(language: dict[str, tuple[str, str]], join: str = " ") -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        (folder / "text.txt").write_text("\n".join(sentences(language, 600, join=join)), encoding="utf-8")
        return [str(folder)]

    return write


def _pdf(lines: list[str]) -> bytes:
    """The smallest PDF with these lines on its one page."""
    shown = "".join(f"({line}) Tj T*\n" for line in lines)
    drawn = f"BT /F1 9 Tf 12 TL 40 800 Td\n{shown}ET".encode()
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    page = b"/Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >>"
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page %s >>" % page,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        font,
    ]
    held, places = b"%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, 1):
        places.append(len(held))
        held += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count, start = len(parts) + 1, len(held)
    held += b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n" % (count, table, count)
    return held + b"startxref\n%d\n%%%%EOF\n" % start


def messy(folder: Path) -> list[str]:
    """A folder that grew for years: pages, notes, tables, pictures, an empty file and what a system leaves."""
    lines = sentences(ENGLISH, 400)
    (folder / "notes.md").write_text(
        "# Notes\n\n" + "\n\n".join(f"- **{line}** [more](http://x.y)" for line in lines[:100]), encoding="utf-8"
    )
    body = "".join(f"<p>{line} &amp; more.</p>" for line in lines[100:200])
    page = f"<html><head><style>p {{ color: red }}</style><script>let x = 1;</script></head><body>{body}</body></html>"
    (folder / "page.html").write_text(page, encoding="utf-8")
    rows = "".join(f'{number},"{line}"\n' for number, line in enumerate(lines[200:300]))
    (folder / "table.csv").write_text(f"id,comment\n{rows}", encoding="utf-8")
    (folder / "plain.txt").write_text("\n".join(lines[300:]), encoding="utf-8")
    if find_spec("docx"):
        docx = import_module("docx").Document()
        for line in sentences(ENGLISH, 100, seed=2):
            docx.add_paragraph(line)
        docx.save(str(folder / "letter.docx"))
    (folder / "paper.pdf").write_bytes(_pdf(sentences(ENGLISH, 40, seed=4)))
    (folder / "empty.txt").write_text("", encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    (folder / "script.py").write_text("print('not prose')\n", encoding="utf-8")
    (folder / ".hidden").write_text("not to be read", encoding="utf-8")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "more.txt").write_text("\n".join(sentences(ENGLISH, 200, seed=1)), encoding="utf-8")
    return [str(folder)]


def code(folder: Path) -> list[str]:
    (folder / "package").mkdir()
    for number in range(60):
        text = CODE.format(name=f"part_{number}", number=number)
        (folder / "package" / f"part_{number}.py").write_text(text, encoding="utf-8")
    return [str(folder / "**" / "*.py")]


def latin_1(folder: Path) -> list[str]:
    (folder / "alt.txt").write_bytes("\n".join(sentences(GERMAN, 600)).encode("latin-1"))
    return [str(folder)]


def json_lines(folder: Path) -> list[str]:
    lines = sentences(ENGLISH, 900)
    records = [{"id": at, "text": " ".join(lines[3 * at : 3 * at + 3])} for at in range(300)]
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return [str(folder)]


FOLDERS: dict[str, Callable[[Path], list[str]]] = {
    "one big file": one_big_file,
    "fifty lines": fifty_lines,
    "German": _language(GERMAN),
    "Turkish": _language(TURKISH),
    "Chinese": _language(CHINESE, join=""),
    "Arabic": _language(ARABIC),
    "messy": messy,
    "code": code,
    "Latin-1": latin_1,
    "JSON lines": json_lines,
}
