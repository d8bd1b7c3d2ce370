"""The report: one page that holds everything, needs nothing else, and never changes by itself."""

import re
from html.parser import HTMLParser

import pytest

from ppas.paper import outputs
from ppas.paper.report import paper_name

VOID = {"meta", "img", "br", "input"}


class Page(HTMLParser):
    """Ids, links and loaded addresses of a page; refuses tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.loaded, self.open = set(), [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            assert values["id"] not in self.ids
            self.ids.add(values["id"])
        self.links += [values["href"]] if tag == "a" else []
        self.loaded += [values[key] for key in ("src", "srcset", "data") if values.get(key)]
        assert tag != "link"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def built(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for name in outputs.tables():
        outputs.build_table(name, study, folder / "tables")
    for name in outputs.figures():
        outputs.build_figure(name, study, folder / "figures")
    outputs.build_claims(study, folder / "tables")
    return folder


@pytest.fixture(scope="module")
def text(built) -> str:
    path = outputs.build_report(built / "figures", built / "tables", built / "report.html")
    return path.read_text(encoding="utf-8")


def test_it_holds_every_output_and_claim(text):
    page = Page(text)
    ids = {*outputs.tables(), *(f"figure-{name}" for name in outputs.figures())}
    ids |= {f"C{n}" for n in range(1, 45)}
    assert ids <= page.ids
    inner = {link[1:] for link in page.links if link.startswith("#")}
    assert inner <= page.ids


def test_it_loads_nothing(text):
    page = Page(text)
    assert all(address.startswith("data:image/png;base64,") for address in page.loaded)
    assert len(page.loaded) == len(outputs.figures())
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", text)
    assert [link for link in page.links if not link.startswith("#")] == [
        "https://arxiv.org/abs/2608.15171"
    ]


def test_two_builds_are_byte_identical(built, text):
    again = outputs.build_report(built / "figures", built / "tables", built / "again.html")
    assert again.read_text(encoding="utf-8") == text


def test_sources_are_told_apart(text):
    for name in ("measured", "simulated", "configured", "published"):
        assert f"<b>{name}</b>" in text
    assert "none yet" in text  # nothing is measured


def test_claims_stand_beside_their_figure(text):
    figure = text[text.index('id="figure-fig07_request_wall"') :].partition("</figure>")[0]
    assert re.findall(r"#(C\d+)", figure) == ["C32", "C35"]
    table = text[text.index('id="table15_nemotron_30b"') :].partition("</section>")[0]
    assert re.findall(r"#(C\d+)", table) == ["C28"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fig01b_mbt_crossover", "Figure 1(b)"),
        ("fig07_request_wall", "Figure 7"),
        ("table16_schedules", "Table 16"),
        ("calibration", ""),
    ],
)
def test_names_are_the_papers(name, expected):
    assert paper_name(name) == expected
