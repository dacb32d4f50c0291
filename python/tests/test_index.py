"""Documents: the index of README names all of them, and no link between files leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS += sorted(ROOT.glob("docs/**/*.md"))


def links(document: Path) -> list[str]:
    """Targets of links and pictures that are no web addresses, outside blocks of code."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^()\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def headings(document: Path) -> set[str]:
    """The anchors that a reader of Markdown makes of headings."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_the_index_has_every_document() -> None:
    index = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Documents\n")[1]
    named = set(re.findall(r"\]\(([^()#]+\.md)\)", index))
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")} <= named


def test_every_document_is_reached_from_readme() -> None:
    reached, waiting = {ROOT / "README.md"}, [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        for link in links(document):
            target = (document.parent / link.split("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert not set(DOCUMENTS) - reached


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for link in links(document):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), f"{document.name}: {link}"
        if anchor:
            assert anchor in headings(target), f"{document.name}: {link}"
