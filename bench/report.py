"""Results as Markdown: one section for the terminal, all of them for docs/performance.md."""

from typing import Final

from bench.harness import ROOT, Json, Section, load

PAGE: Final = ROOT / "docs" / "performance.md"
_BEGIN: Final = "<!-- written by `make bench`; what stands outside these marks is kept -->"
_END: Final = "<!-- end of what `make bench` writes -->"
_ORDER: Final = ("dispatcher", "growth", "ingestion", "latency", "api")


def of_section(section: Section) -> str:
    """Return the section's table, goals and remarks."""
    return _text(vars(section))


def write_page() -> None:
    """Put the last full result of each benchmark into the page."""
    results = load()
    parts = [
        f"{_text(results[name])}\n\n{_facts(results[name])}" for name in _ORDER if name in results
    ]
    page = PAGE.read_text() if PAGE.exists() else f"# Performance\n\n{_BEGIN}\n{_END}\n"
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(f"{before}{_BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{_END}{after}")


def _text(section: Json) -> str:
    columns, rows = section["columns"], section["rows"]
    lines = [f"## {section['title']}", ""]
    lines += [f"- {goal}" for goal in section["goals"]]
    lines += ["", _row(columns), _row(["---"] * len(columns)), *map(_row, rows), ""]
    lines += [f"- {remark}" for remark in section["remarks"]]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _facts(section: Json) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in section["facts"].items())
    return f"Medians of {section['repeats']} interleaved repeats. {facts}."
