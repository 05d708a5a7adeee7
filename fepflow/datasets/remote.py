"""Test cases from an address: its files, fetched, and what a run records about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fepflow.datasets.addresses import HubAddress, hub_address, public_address, scheme_of
from fepflow.datasets.downloads import SILENCE_SECONDS, Download, fetch
from fepflow.datasets.records import format_of
from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.extras import require
from fepflow.security.redaction import words_of
from fepflow.text import brief

MOST_FILES = 200
_LISTED = 10
_DATA = re.compile(r".*\.(?:parquet|xlsx|(?:jsonl|ndjson|json|csv|tsv)(?:\.gz)?)", re.IGNORECASE)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})")
_NO_DATA = re.compile(r"(?:^|/)(?:\.|dataset_infos?\.json$|state\.json$|croissant\.json$)")


@dataclass(frozen=True)
class RemoteFiles:
    """The files of test cases of an address, in their order, each with its name in messages.

    `revision` is the commit, version or generation, where the source has them.
    """

    address: str
    files: tuple[tuple[Download, str], ...]
    revision: str | None

    def data(self) -> dict[str, Any]:
        """Return what the run's row keeps. The digest of several files is that of their digests, one a line."""
        digests = [download.sha256 for download, _ in self.files]
        digest = digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()
        size = sum(download.size for download, _ in self.files)
        data = {"url": self.address, "sha256": digest, "bytes": size}
        return data | ({"revision": self.revision} if self.revision else {})


def fetch_cases(address: str, format: str | None, split: str | None, revision: str | None) -> RemoteFiles:
    """Fetch the files of an address that has no problem (see `data_address_problem`).

    Raises InputError if the suite or the file has to change, InfrastructureError if the source cannot be reached.
    """
    shown = public_address(address)
    if scheme_of(address) == "hf":
        return _from_hub(hub_address(address, revision), shown, split)
    format_of(Path(urlsplit(address).path), format, shown)  # else it would be fetched in vain
    download = fetch(address, shown=shown)
    return RemoteFiles(shown, ((download, shown),), download.revision)


def _from_hub(address: HubAddress, shown: str, split: str | None) -> RemoteFiles:
    require("remote", "reading hf://", "huggingface_hub")
    from huggingface_hub import HfApi, get_token, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None  # the library reads it once, when it is imported
    with _errors_of_hub(shown):
        info = HfApi(endpoint=endpoint).dataset_info(
            address.repo, revision=address.revision, files_metadata=True, timeout=SILENCE_SECONDS
        )
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    configs = configurations(info.card_data.get("configs") if info.card_data else None)
    chosen = _declared(configs, list(siblings), address.path, split, shown)
    files = []
    for name in chosen or _chosen(list(siblings), address.path, split, shown):
        file = f"hf://datasets/{address.repo}@{str(info.sha)[:12]}/{name}"
        download = fetch(
            hf_hub_url(address.repo, name, repo_type="dataset", revision=info.sha, endpoint=endpoint),
            shown=file,
            headers={"Authorization": f"Bearer {token}"} if (token := get_token()) else None,
            is_constant=True,  # the address names the commit
            sha256=lfs.sha256 if (lfs := siblings[name].lfs) is not None else None,
        )
        files.append((download, file))
    return RemoteFiles(shown, tuple(files), info.sha)


@contextmanager
def _errors_of_hub(shown: str) -> Iterator[None]:
    import httpx
    from huggingface_hub import errors

    refuse = partial(_refused, shown)
    try:
        yield
    except errors.GatedRepoError:
        raise refuse("may not be read", "accept its terms on the hub, and set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise refuse("has no such revision", "a revision is a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        raise refuse("the hub has no such dataset", "check its name; a private one takes HF_TOKEN") from None
    except errors.HFValidationError as error:
        raise refuse(brief(words_of(error), 200), "it reads like hf://datasets/ORG/NAME") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise refuse(f"may not be read: the hub answers {status}", "set HF_TOKEN") from None
        raise InfrastructureError(
            f"{shown} cannot be fetched: the hub answers {status}; nothing was evaluated: try again later"
        ) from None
    except (httpx.TransportError, errors.OfflineModeIsEnabled, ValueError, KeyError, TypeError) as error:
        # The library raises the last three for an answer that is not a listing.
        reason = words_of(error, 200) or type(error).__name__
        raise InfrastructureError(
            f"{shown} cannot be fetched: the hub does not answer as it should ({reason}); nothing was evaluated"
        ) from None


def _refused(shown: str, message: str, advice: str) -> InputError:
    return InputError(Problem(message, shown, advice=advice))


def configurations(declared: Any) -> dict[str, dict[str, list[str]]]:
    """Return the splits of each configuration that a dataset's card declares, each as the patterns of its files.

    Invalid declarations are left out; then the files' names decide. The default configuration is also kept as "".
    """
    configs: dict[str, dict[str, list[str]]] = {}
    for config in declared if isinstance(declared, list) else ():
        if not isinstance(config, dict) or not isinstance(name := config.get("config_name"), str):
            continue
        files: Any = config.get("data_files")
        are_items = isinstance(files, list) and all(isinstance(item, dict) for item in files)
        items = files if are_items else [{"path": files}]
        splits: dict[str, list[str]] = {}
        for item in items:
            split, patterns = item.get("split", "train"), item.get("path")  # as the hub calls what has no split
            patterns = [patterns] if isinstance(patterns, str) else patterns
            if isinstance(split, str) and isinstance(patterns, list) and all(isinstance(one, str) for one in patterns):
                splits.setdefault(split, []).extend(patterns)
        if splits:
            configs[name] = splits
            if config.get("default") is True or name == "default":
                configs[""] = splits
    return configs


def _declared(
    configs: dict[str, dict[str, list[str]]], names: Sequence[str], path: str, split: str | None, shown: str
) -> list[str]:
    """Return the files of a split as the dataset's card declares them; an empty list if it does not declare this path.

    Raises InputError for an undeclared split, and if several could be meant.
    """

    refuse = partial(_refused, shown)
    if not path and configs and "" not in configs and len(configs) > 1:
        first = f"{shown.rstrip('/')}/{next(iter(configs))}"
        raise refuse(f"has several configurations: {_names(list(configs))}", f"name one, as in {first}")
    splits = configs.get(path, {}) if path or "" in configs else next(iter(configs.values()), {})
    if path in names or not splits:
        return []
    if split is None and len(splits) > 1:
        raise refuse(f"has several splits: {_names(list(splits))}", f"give one, as in `split: {next(iter(splits))}`")
    if split is not None and split not in splits:
        raise refuse(f"has no split {brief(split, 60)}", f"there are {_names(list(splits))}")
    patterns = splits[split] if split is not None else next(iter(splits.values()))
    chosen = [name for pattern in patterns for name in sorted(names) if fits(name.split("/"), pattern.split("/"))]
    chosen = [name for name in dict.fromkeys(chosen) if _DATA.fullmatch(name)]
    if not chosen:
        raise refuse(f"declares a split of files that are not there: {_names(patterns)}", f"there are {_names(names)}")
    return _complete(chosen, shown)


def fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path fits a pattern, in which * is a part of a name and ** any folders, or none."""
    if "**" not in pattern:
        return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))
    at = pattern.index("**")
    before, after = pattern[:at], pattern[at + 1 :]
    if len(parts) < len(before) + len(after) or "**" in after:  # a second one is not read
        return False
    return fits(parts[:at], before) and fits(parts[len(parts) - len(after) :], after)


def _chosen(names: Sequence[str], path: str, split: str | None, shown: str) -> list[str]:
    """Return the file of an address, or its numbered parts, in order. Raises InputError.

    The file is never guessed: a dataset with several files takes a split, a folder or a file's name.
    """

    refuse = partial(_refused, shown)
    if path in names:
        if split is not None:
            raise refuse("names one file, which has no splits", "remove split")
        if not _DATA.fullmatch(path):
            format_of(Path(path), None, shown)
        return [path]
    inside = [name for name in names if not path or name.startswith(f"{path}/")]
    data = sorted(name for name in inside if _DATA.fullmatch(name) and not _NO_DATA.search(name))
    if not data:
        raise refuse("has no data file there", f"there are {_names(inside or names)}")
    chosen = data if split is None else [name for name in data if _is_of_split(name[len(path) :], split)]
    if not chosen:
        raise refuse(f"has no file of the split {brief(split or '', 60)}", f"there are {_names(data)}")
    groups = {_SHARD.sub("", name) for name in chosen}
    if len(groups) > 1:
        what = "give split, a folder or" if split is None else "name a folder or"
        advice = f"{what} the file, as in {shown.rstrip('/')}{'' if path else '/'}{chosen[0][len(path) :]}"
        raise refuse(f"has several files: {_names(chosen)}", advice)
    return _complete(chosen, shown)


def _complete(chosen: list[str], shown: str) -> list[str]:
    """Return the files of one split. Raises InputError if numbered parts are missing, or too many."""

    refuse = partial(_refused, shown)
    groups: dict[str, list[re.Match[str] | None]] = {}
    for name in chosen:
        groups.setdefault(_SHARD.sub("", name), []).append(_SHARD.search(PurePosixPath(name).name))
    for group in groups.values():
        parts = [match for match in group if match]
        if parts and (len(parts) != len(group) or [int(part[1]) for part in parts] != list(range(int(parts[0][2])))):
            raise refuse(f"has not all parts of a file: {_names(chosen)}", "name the file")
    if len(chosen) > MOST_FILES:
        raise refuse(f"has {len(chosen)} parts, more than {MOST_FILES}", "name one of them")
    return chosen


def _is_of_split(name: str, split: str) -> bool:
    """Return whether a path contains the split as a whole word, by which the hub recognizes splits."""
    return re.search(rf"(?:^|[-._ /0-9]){re.escape(split)}(?:$|[-._ /0-9])", name, re.IGNORECASE) is not None


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(brief(name, 100) for name in names[:_LISTED]) + more if names else "no files"
