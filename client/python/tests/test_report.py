"""keval.report: the reports that the repository holds, as tables and pictures."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("Agg")

from matplotlib import pyplot  # noqa: E402

import keval.report  # noqa: E402

ROOT = pathlib.Path(__file__).parents[3]
FOLDERS = sorted(path.parent for path in (ROOT / "docs" / "results").glob("*/report.json"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> pathlib.Path:
    folder: pathlib.Path = request.param
    return folder


@pytest.fixture(autouse=True)
def closed_figures() -> Any:
    yield
    pyplot.close("all")


def test_there_are_reports_of_a_cpu_and_of_a_gpu() -> None:
    devices = {keval.report.load(folder).document["spec"]["target"]["device"] for folder in FOLDERS}
    assert devices >= {"cpu", "cuda:0"}


def test_tables_are_the_document(folder: pathlib.Path) -> None:
    report = keval.report.load(folder)
    document = json.loads((folder / "report.json").read_text())
    assert (report.verdict, report.reason) == (document["verdict"], document["reason"])

    assert list(report.series["series"]) == [entry["series"] for entry in document["series"]]
    assert set(report.series["role"]) >= {"primary", "control"}
    first, row = document["series"][0], report.series.iloc[0]
    assert (row["gain_pct"], row["status"]) == (first["gain_pct"], first["status"])
    assert row["vocab_size"] == int(first["shape"]["vocab_size"]) and row["dtype"] in row["series"]
    assert math.isnan(report.series[report.series["role"] == "control"].iloc[0]["delta"])

    rounds = report.rounds[report.rounds["series"] == first["series"]]
    assert list(rounds["D"]) == first["D"]
    assert ((rounds["gain_pct"] > 0) == (rounds["D"] > 0)).all()
    assert len(report.looks) == sum(len(look["series"]) for look in document["looks"])
    assert len(report.blocks) == len(document["blocks"])
    assert len(report.contract) == len(document["contract"]["rows"])
    assert report.contract["limit"].dtype == float
    assert len(report.excluded) == 0


def test_times_come_from_the_samples(folder: pathlib.Path) -> None:
    """The median over blocks of each block's median, where no block was thrown away."""
    report = keval.report.load(folder)
    for row in report.series.to_dict("records"):
        samples = report.samples[report.samples["series"] == row["series"]]
        if samples["throttled"].any() or row["quads_dropped"]:
            continue
        blocks = samples.groupby(["arm", "round", "quad", "pos"])["ns"].median().groupby("arm").median() / 1e6
        assert blocks["A"] == pytest.approx(row["base_ms"], rel=1e-9)
        assert blocks["B"] == pytest.approx(row["candidate_ms"], rel=1e-9)


def test_pictures(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    report = keval.report.load(folder / "report.json")
    forest = report.plot_forest()
    assert len(forest.get_yticklabels()) == len(report.series)
    assert report.verdict in forest.get_title()
    rounds = report.plot_rounds()
    assert len(rounds.get_legend().get_texts()) == len(report.series)
    clocks = report.plot_clocks()
    gpu = report.document["spec"]["target"]["device"] != "cpu"
    assert ("MHz" in clocks.get_ylabel()) == gpu
    for name, axes in (("forest", forest), ("rounds", rounds), ("clocks", clocks)):
        axes.figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    axes = pyplot.subplots()[1]
    assert report.plot_rounds(axes) is axes


def files_of(document: dict[str, Any]) -> dict[str, bytes]:
    return {"report.json": json.dumps({"format": "keval.report.v1", **document}).encode()}


def test_a_job_that_failed_early() -> None:
    report = keval.report.load(files_of({"verdict": "FAILED", "reason": "DEVICE"}))
    assert (report.verdict, report.reason) == ("FAILED", "DEVICE")
    for table in (report.series, report.rounds, report.looks, report.blocks, report.contract, report.samples):
        assert len(table) == 0
    for plot in (report.plot_forest, report.plot_rounds, report.plot_clocks):
        plot().figure.canvas.draw()


def test_figures_that_are_no_numbers_and_names_of_anybody() -> None:
    series = {
        **{"series": "_$\\frac{1}$\x1b[31m", "role": "primary", "status": "short", "delta": "nan", "gain_pct": "inf"},
        **{"gain_lo_pct": "-inf", "gain_hi_pct": None, "D": ["nan", 1e9], "rounds": [0, 1]},
        **{"shape": {"num_tokens": "9007199254740993"}},  # More than a double holds.
    }
    report = keval.report.load(files_of({"verdict": "INCONCLUSIVE", "series": [series], "display_name": "$x$"}))
    row = report.series.iloc[0]
    assert math.isnan(row["delta"]) and math.isnan(row["gain_hi_pct"])
    assert (row["gain_pct"], row["gain_lo_pct"]) == (math.inf, -math.inf)
    assert row["num_tokens"] == 9007199254740993
    assert list(report.rounds["gain_pct"].isna()) == [True, False]
    series["D"] = [0.01, 0.02]
    report = keval.report.load(files_of({"verdict": "INCONCLUSIVE", "series": [series], "display_name": "$x$"}))
    for plot in (report.plot_forest, report.plot_rounds):
        plot().figure.canvas.draw()
    assert "\x1b" not in report.plot_rounds().get_legend().get_texts()[0].get_text()


@pytest.mark.parametrize("contents", [b"{}", b"[]", b"{", b'{"format": "keval.report.v2"}'])
def test_what_is_no_report(contents: bytes) -> None:
    with pytest.raises(ValueError):
        keval.report.load({"report.json": contents})
    with pytest.raises(ValueError, match=r"no report\.json"):
        keval.report.load({"samples.csv": contents})


def test_samples_of_another_report() -> None:
    files = {name: (FOLDERS[0] / name).read_bytes() for name in ("report.json", "samples.csv")}
    files["samples.csv"] = files["samples.csv"].replace(b"0\n", b"1\n", 1)
    with pytest.raises(ValueError, match=r"samples\.csv isn't the file"):
        keval.report.load(files)


def test_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell in turn, from its folder."""
    notebook = ROOT / "client" / "python" / "examples" / "report.ipynb"
    document = json.loads(notebook.read_text())
    assert document["nbformat"] == 4
    monkeypatch.chdir(notebook.parent)
    namespace: dict[str, Any] = {}
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), str(notebook), "exec"), namespace)
    assert len(namespace["by_round"]) == namespace["report"].rounds["round"].nunique()
