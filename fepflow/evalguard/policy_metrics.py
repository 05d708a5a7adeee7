"""Metrics of tasks in EvalGuard's newer layout: its tasks list none, and its policies have thresholds for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.documents.loader import read_document
from fepflow.errors import InputError
from fepflow.evalguard.documents import SUFFIXES, leads_outside

METRICS = "metrics"


@dataclass
class PolicyMetrics:
    """The metrics that the policies of catalogues have thresholds for; each catalogue's are read once."""

    _by_catalogue: dict[Path, dict[str, list[str]]] = field(default_factory=dict)

    def completed(self, data: Any, path: Path) -> Any:
        """Return the document of a task in `path`, with the metrics of the policies beside it if it lists none.

        Without policies it is returned as it is: v1 requires the list.
        """
        policies = path.parent.parent / "policies"
        if path.parent.name != "tasks" or not isinstance(data, Mapping) or METRICS in data or not policies.is_dir():
            return data
        if policies not in self._by_catalogue:
            self._by_catalogue[policies] = _metrics_by_task(policies)
        task = data.get("id")
        metrics = self._by_catalogue[policies].get(task, []) if isinstance(task, str) else []
        return {**data, METRICS: metrics}


def _metrics_by_task(policies: Path) -> dict[str, list[str]]:
    """Return the metrics of each task. What is wrong with a policy is told where policies are validated."""
    found: dict[str, list[str]] = {}
    for path in sorted(policies.iterdir()):
        if path.suffix not in SUFFIXES or not path.is_file() or leads_outside(path, policies.resolve()):
            continue
        try:
            data = read_document(path).data
        except InputError:
            continue
        tasks = data.get("thresholds") if isinstance(data, Mapping) else None
        for task, metrics in tasks.items() if isinstance(tasks, Mapping) else ():
            names = list(metrics) if isinstance(metrics, Mapping) else []
            found[str(task)] = list(dict.fromkeys([*found.get(str(task), []), *names]))
    return found
