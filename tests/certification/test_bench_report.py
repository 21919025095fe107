"""What the benchmark writes: its table, its JSON, its plots, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from certification.bench import program
from certification.bench.plot import chart, plots
from certification.bench.report import (
    Figure,
    Target,
    at_least,
    at_most,
    exactly,
    number,
    read_json,
    table,
    write_json,
)
from certification.bench.site import Site
from certification.bench.timing import interleave, ratio

FIGURES = [
    Figure("cpu.sqlite", "CPU per activity", 0.91234, "ms", at_most(0.8), {"ms": [0.9, 0.91234, 2.0]}),
    Figure("commits.plain.sqlite", "durable commits", 2, "", exactly(2)),
    Figure("cpu.decode", "decoding", 0.1, "ms", note="to be subtracted"),
]


@pytest.mark.parametrize(
    ("target", "kept", "missed"),
    [(at_most(1.25), 1.25, 1.26), (at_least(30), 30, 29.9), (exactly(2), 2, 3)],
)
def test_a_target_is_kept_up_to_its_bound(target: Target, kept: float, missed: float) -> None:
    """The bound itself is good."""
    assert target.holds(kept)
    assert not target.holds(missed)


def test_a_row_without_a_target_neither_holds_nor_misses() -> None:
    """It is there to read others by."""
    assert [figure.holds for figure in FIGURES] == [False, True, None]


def test_the_table_says_what_was_measured_and_whether_it_holds() -> None:
    """One line a figure, in columns."""
    assert table(FIGURES).splitlines() == [
        "figure            measured  target  holds",
        "----------------  --------  ------  -----",
        "CPU per activity  0.912 ms  <= 0.8  NO",
        "durable commits          2     = 2  yes",
        "decoding            0.1 ms",
    ]


def test_a_table_of_nothing_has_its_head() -> None:
    """Nothing measured is no error of the table's."""
    assert len(table([]).splitlines()) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2"), (0.00123, "0.00123"), (1.256, "1.26"), (1234.5, "1,234"), (2_000_000, "2,000,000")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    """Three digits that count, and thousands apart."""
    assert number(value) == text


def test_the_json_keeps_every_sample(tmp_path: Path) -> None:
    """And reads back as the same rows."""
    file = tmp_path / "run.json"
    write_json(file, FIGURES, {"cores": 2})
    assert read_json(file) == FIGURES
    written = json.loads(file.read_text(encoding="utf-8"))
    assert written["about"] == {"cores": 2}
    assert written["figures"][0]["holds"] is False
    assert written["figures"][0]["medians"] == {"ms": 0.91234}


def test_what_is_compared_takes_turns() -> None:
    """Every other turn goes backwards, and each gets its own samples."""
    order: list[str] = []

    def note(name: str, value: float) -> float:
        order.append(name)
        return value

    samples = interleave(2, {"a": lambda: note("a", 6.0), "b": lambda: note("b", 2.0)})
    assert order == ["a", "b", "b", "a"]
    assert samples == {"a": [6.0, 6.0], "b": [2.0, 2.0]}
    assert ratio(samples, "a", "b") == 3.0


SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_has_a_line_a_series() -> None:
    """With a dot a point, a name a line, and text that cannot break the document."""
    drawn = chart("a < b", "x", "y", {"one & two": [(1, 10), (64, 20)], "three": [(1, 5), (64, 0)]})
    root = ElementTree.fromstring(drawn)
    assert len(root.findall(f"{SVG}polyline")) == 2
    assert len(root.findall(f"{SVG}circle")) == 4
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert {"a < b", "one & two", "three"} <= set(texts)


def test_zero_is_at_the_bottom() -> None:
    """More is higher."""
    root = ElementTree.fromstring(chart("t", "x", "y", {"a": [(1, 0), (2, 10)]}))
    low, high = [float(circle.attrib["cy"]) for circle in root.findall(f"{SVG}circle")]
    assert low == 370
    assert 50 <= high < low


def test_plots_are_drawn_of_what_was_measured() -> None:
    """Throughput by callers, and cost by size; nothing where neither was measured."""
    rate = {"memoflow 1": [100.0], "memoflow 64": [900.0], "dbos 1": [50.0], "dbos 64": [80.0]}
    grown = {"empty at 50": [500.0], "full at 50": [400.0, 400.0, 90.0], "full cpu at 50": [2.0]}
    made = plots(
        [Figure("dbos.sqlite_wal", "", 1, samples=rate), Figure("growth.sqlite", "", 1, samples=grown)]
    )
    assert set(made) == {"throughput.svg", "growth.svg"}
    assert "memoflow sqlite<" in made["throughput.svg"]
    assert "dbos sqlite_wal<" in made["throughput.svg"]
    assert len(ElementTree.fromstring(made["growth.svg"]).findall(f"{SVG}circle")) == 2
    assert plots(FIGURES) == {}


def test_a_missed_target_is_reported_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says whether it could be measured."""
    monkeypatch.setattr(program, "run", lambda name, site: iter(FIGURES))
    out, plot = tmp_path / "run.json", tmp_path / "plots"
    given = ["--quick", "--only", "digest", "--data", str(tmp_path), "--out", str(out), "--plot", str(plot)]
    assert program.main(given) == 0
    assert "CPU per activity  0.912 ms  <= 0.8  NO" in capsys.readouterr().out
    about = json.loads(out.read_text(encoding="utf-8"))["about"]
    assert about["commit_ms"]["sqlite"] > 0
    assert {"machine", "versions", "commit", "at"} <= set(about)
    assert plot.is_dir()


def test_what_cannot_be_measured_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are measured all the same."""

    def run(name: str, site: Site) -> Iterator[Figure]:
        if name == "digest":
            raise RuntimeError("no such thing")
        yield FIGURES[0]

    monkeypatch.setattr(program, "run", run)
    assert program.main(["--quick", "--only", "digest", "imports", "--data", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "CPU per activity" in said.out
    assert "could not be measured: digest" in said.err


@pytest.mark.parametrize(
    ("given", "kinds"), [([], ("sqlite", "postgresql")), (["--database", "sqlite"], ("sqlite",))]
)
def test_figures_are_measured_on_the_databases_that_are_chosen(
    given: list[str], kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On both, or on the one that is named."""
    seen = []

    def run(name: str, site: Site) -> Iterator[Figure]:
        seen.append(site.kinds)
        yield FIGURES[0]

    monkeypatch.setattr(program, "run", run)
    assert program.main(["--quick", "--only", "digest", "--data", str(tmp_path), *given]) == 0
    assert seen == [kinds]


@pytest.mark.parametrize("name", program.FIGURES)
def test_every_figure_has_a_module_that_measures_it(name: str) -> None:
    """None is named that is not there."""
    with Site(quick=True) as site:
        assert isinstance(program.run(name, site), Iterator)
