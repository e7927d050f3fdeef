"""A job's report as tables of pandas and pictures of matplotlib.

report = keval.report.load("report")  # What `keval run --report_dir report` wrote, or client.jobs.report(job).
report.series[["series", "gain_pct", "status"]]
report.plot_forest()
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keval._errors import printable

try:
    import pandas as pd
except ImportError as error:
    raise ImportError("keval.report needs pandas: pip install 'keval[pandas]'") from error

__all__ = ["Report", "load"]

_FORMAT = "keval.report.v1"
_SAMPLE_COLUMNS = ("series", "role", "round", "quad", "pos", "arm", "rep", "ns", "throttled")
_SERIES_TEXTS = ("series", "role", "status")
_SERIES_NUMBERS = (
    *("delta", "base_ms", "candidate_ms", "gain_pct", "gain_lo_pct", "gain_hi_pct", "L", "sup_lo", "sup_hi"),
    *("positive", "n", "between_sd", "within_sd", "mean_ratio", "p95_ratio", "smallest_detectable", "p_loss", "p_holm"),
    *("hodges_lehmann", "quads", "quads_dropped"),
)
_BLOCK_KEYS = ("round", "series", "quad", "pos", "arm")
_EDGE_NUMBERS = ("sm_clock_mhz", "memory_clock_mhz", "power_watts", "temperature_celsius", "other_processes")
_MARKS = {"primary": "o", "guard": "s", "control": "^"}


def load(source: str | os.PathLike[str] | Mapping[str, bytes]) -> Report:
    """A report's folder, its report.json, or its files by name as client.jobs.report gives them. ValueError for what is
    no report, and for a file beside report.json that isn't the one it names. Files that aren't there are empty tables.
    """
    if isinstance(source, Mapping):
        files = dict(source)
    else:
        path = pathlib.Path(source)
        folder = path.parent if path.is_file() else path
        names = ("report.json", "samples.csv", "diagnostics.csv", "excluded.csv")
        files = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    if "report.json" not in files:
        raise ValueError("no report.json")
    document = json.loads(files["report.json"])
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"report.json isn't of the format {_FORMAT}")
    for entry in document.get("files", ()):
        contents = files.get(entry["name"])
        if contents is not None and hashlib.sha256(contents).hexdigest() != entry["sha256"]:
            raise ValueError(f"{printable(entry['name'])} isn't the file that report.json names: its SHA-256 differs")
    return Report(document, *(_csv(files.get(f"{name}.csv")) for name in ("samples", "diagnostics", "excluded")))


def _csv(contents: bytes | None) -> Any:
    if not contents:
        return pd.DataFrame(columns=list(_SAMPLE_COLUMNS))
    return pd.read_csv(io.BytesIO(contents), keep_default_na=False)


def _number(value: Any) -> Any:
    """Of a figure: an integer or a float; NaN where there is none. Non-finite ones, and long integers, are strings."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return value


def _percent(difference: Any) -> Any:
    """Of differences in ln units."""
    with np.errstate(over="ignore"):
        return 100 * np.expm1(difference)


def _text(text: str) -> str:
    """A name from outside as matplotlib is to show it: no formula, nothing that a legend would leave out."""
    shown = printable(text, 60).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown


@dataclasses.dataclass(frozen=True)
class Report:
    """One job's. `document` is report.json (docs/report_format.md); the rest are its tables. Raw samples, in ns, are
    `samples`; those of diagnostics and of what was excluded never decided anything.
    """

    document: dict[str, Any]
    samples: Any
    diagnostics: Any
    excluded: Any

    @property
    def verdict(self) -> str:
        return str(self.document.get("verdict", ""))

    @property
    def reason(self) -> str:
        return str(self.document.get("reason", ""))

    @property
    def series(self) -> Any:
        """A row for each series: shape, times, gain in percent with its interval, and how it was judged."""
        rows = []
        for entry in self.document.get("series", ()):
            row = {key: entry.get(key, "") for key in _SERIES_TEXTS}
            row |= {key: _number(entry.get(key)) for key in _SERIES_NUMBERS}
            shape, memory, cycles = (entry.get(key) or {} for key in ("shape", "memory", "cycles"))
            row |= {key: _number(shape.get(key)) for key in ("num_tokens", "hidden_size", "vocab_size")}
            row["dtype"] = shape.get("dtype", "").removeprefix("DATA_TYPE_").lower()
            row["bias"] = bool(shape.get("bias", False))
            row |= {key: _number(memory.get(key)) for key in ("base_bytes", "candidate_bytes")}
            row["gain_cycles_pct"] = _number(cycles.get("gain_pct"))
            rows.append(row)
        return pd.DataFrame(rows)

    @property
    def rounds(self) -> Any:
        """A row for each series and round: D in ln units, and as a gain in percent."""
        rows = [
            {"series": entry["series"], "role": entry["role"], "round": int(number), "D": value}
            for entry in self.document.get("series", ())
            for number, value in zip(entry.get("rounds", ()), map(_number, entry.get("D", ())), strict=True)
        ]
        table = pd.DataFrame(rows, columns=["series", "role", "round", "D"])
        table["gain_pct"] = _percent(table["D"].astype(float))
        return table

    @property
    def looks(self) -> Any:
        """A row for each look and series: its figures then."""
        rows = []
        for look in self.document.get("looks", ()):
            for name, figures in look["series"].items():
                scalars = {key: value for key, value in figures.items() if not isinstance(value, (list, dict))}
                row = {key: value if key == "role" else _number(value) for key, value in scalars.items()}
                rows.append({"R": look["R"], "series": name, **row})
        return pd.DataFrame(rows)

    @property
    def blocks(self) -> Any:
        """A row for each block, in the order realised: what the device told before it and after it."""
        rows = []
        for block in self.document.get("blocks", ()):
            row = {key: block[key] for key in _BLOCK_KEYS}
            for edge in ("before", "after"):
                row |= {f"{key}_{edge}": _number((block.get(edge) or {}).get(key)) for key in _EDGE_NUMBERS}
            rows.append(row)
        return pd.DataFrame(rows)

    @property
    def contract(self) -> Any:
        """The correctness table."""
        rows = (self.document.get("contract") or {}).get("rows", ())
        return pd.DataFrame(
            [row | {key: _number(row.get(key)) for key in ("measured", "limit")} for row in rows],
            columns=["id", "arm", "case", "measured", "limit", "status", "why"],
        )

    def plot_forest(self, axes: Any = None) -> Any:
        """The gain of each series with its interval, and its margin as a band about zero. The axes."""
        axes = _axes(axes)
        names: list[str] = []
        for at, row in enumerate(self.series.to_dict("records")):
            if row["delta"] > 0:
                axes.fill_betweenx([at - 0.3, at + 0.3], -_percent(row["delta"]), _percent(row["delta"]), alpha=0.15)
            gain, low, high = row["gain_pct"], row["gain_lo_pct"], row["gain_hi_pct"]
            if math.isfinite(gain):
                interval = [[gain - low], [high - gain]] if math.isfinite(low) and math.isfinite(high) else None
                axes.errorbar([gain], [at], xerr=interval, fmt=_MARKS.get(row["role"], "x"), color="black")
            names.append(_text(f"{row['series']} ({row['role']})"))
        axes.set_yticks(range(len(names)), names)
        axes.axvline(0, linewidth=0.8, color="black")
        axes.invert_yaxis()
        axes.set_xlabel("gain, %")
        # Two lines: a long name must not cost the verdict.
        lines = (self.document.get("display_name", ""), f"{self.verdict} {self.reason}".strip())
        axes.set_title("\n".join(_text(text) for text in lines if text))
        return axes

    def plot_rounds(self, axes: Any = None) -> Any:
        """Each series' value of each round. The axes."""
        axes = _axes(axes)
        for (series, role), rows in self.rounds.groupby(["series", "role"], sort=False):
            axes.plot(rows["round"], rows["gain_pct"], marker=_MARKS.get(role, "x"), linewidth=0.8, label=_text(series))
        axes.axhline(0, linewidth=0.8, color="black")
        axes.set_xlabel("round")
        axes.set_ylabel("gain, %")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
        return axes

    def plot_clocks(self, axes: Any = None) -> Any:
        """The SM clock of each block in the order realised, by arm; where the device told none, the cores that other
        processes kept busy in each round. The axes.
        """
        axes = _axes(axes)
        blocks = self.blocks
        if not blocks.empty and blocks["sm_clock_mhz_after"].notna().any():
            for arm, rows in blocks.groupby("arm"):
                axes.plot(rows.index, rows["sm_clock_mhz_after"], ".", label=f"arm {_text(arm)}")
            axes.set_xlabel("block")
            axes.set_ylabel("SM clock, MHz")
            axes.legend(fontsize="small")
            return axes
        rounds: Iterable[dict[str, Any]] = self.document.get("rounds", ())
        cores = {entry["round"]: _number(entry.get("foreign_cpu_cores")) for entry in rounds}
        axes.plot(list(cores), list(cores.values()), "o-")
        axes.set_xlabel("round")
        axes.set_ylabel("cores that others kept busy")
        return axes


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'keval[matplotlib]'") from error
    return pyplot.subplots(layout="constrained")[1]
