"""A file of labels: one that people fill, or with what they have said."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fepflow.errors import UserError
from fepflow.reports.fep import dumps
from fepflow.reports.spreadsheet import BYTE_ORDER_MARK, harmless


def write_label_sheet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows with the same keys, `id` the first and `label` among them, to a new file; raises UserError.

    An id stays as it is, since labels are found by it.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise UserError(f"{path}: a file of labels is written as .csv or .jsonl: name one that ends so.")
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            if path.suffix == ".jsonl":
                file.writelines(f"{dumps(row)}\n" for row in rows)
                return
            file.write(BYTE_ORDER_MARK)
            table = csv.writer(file)
            table.writerow(rows[0])
            table.writerows([row["id"], *(harmless(row[name]) for name in row if name != "id")] for row in rows)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None
