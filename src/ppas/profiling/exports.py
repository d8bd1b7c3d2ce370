"""CSV exports of NVIDIA's tools, which print their own remarks before the table."""

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ppas.profiling.kernels import ProfileError


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """The table of an export, all cells as text; its header is the first line with ``columns``.

    Raises:
        ProfileError: no such file, no such table in it, or no rows.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}; profile again") from None
    for number, line in enumerate(lines):
        if all(column in line for column in columns):
            table = _parse(path, lines[number:])
            break
    else:
        raise ProfileError(f"{path}: no table with the columns {', '.join(columns)}")
    missing = [column for column in columns if column not in table]
    if missing:
        raise ProfileError(f"{path}: no column {', '.join(missing)}")
    if table.empty:
        raise ProfileError(f"{path}: no kernels; was the prefill profiled?")
    return table


def _parse(path: Path, lines: Sequence[str]) -> pd.DataFrame:
    text = io.StringIO("\n".join(lines))
    try:
        return pd.read_csv(text, dtype=str, keep_default_na=False, index_col=False)
    except (ValueError, pd.errors.ParserWarning) as error:
        problem = str(error).strip().splitlines()[-1]
        raise ProfileError(f"{path}: not a CSV export: {problem}") from None


def numbers(path: Path, column: pd.Series) -> pd.Series:
    """A column as numbers; the tools may group digits by commas.

    Raises:
        ProfileError: a cell that is no number, such as n/a.
    """
    plain = column.str.replace(",", "", regex=False)
    values = pd.to_numeric(plain, errors="coerce")
    if values.isna().any():
        wrong = column[values.isna()].iloc[0]
        raise ProfileError(f"{path}: {column.name}: {wrong!r} is not a number")
    return values
