"""What is installed and found on this machine, what is missing, and the command that mends it.

Nothing is downloaded, made or changed. With `--device cuda` the tests of the GPU are run where there is one.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.config import DATASETS, SETTINGS, Settings
from rapid_lab.errors import DataError, SettingError
from rapid_lab.folders import cache_folder, is_folder, path_of
from rapid_lab.tracking.provenance import ROOT, git_state, hardware, versions
from rapid_lab.tracking.redaction import redact

MIB = 2**20
GPU_TESTS = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]


class Findings(list[dict[str, str]]):
    """What is missing, each with the command that mends it."""

    def add(self, what: str, mend: str) -> None:
        """Note one thing."""
        self.append({"what": what, "mend": mend})


def run(arguments: Sequence[str]) -> None:
    """Look, and print."""
    options = parsed(parser(), arguments)
    SETTINGS["device"].check(options.device)
    document = examine(options.device)
    print(json.dumps(document, indent=1) if options.json else _rendered(document))


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab doctor", description=__doc__)
    parser.add_argument("--device", default="auto", metavar="VALUE", help=SETTINGS["device"].description)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def examine(device: str) -> dict[str, Any]:
    """Everything, as JSON takes it."""
    missing = Findings()
    return {
        "versions": _versions(missing),
        "hardware": hardware(),
        "device": _device(device, missing),
        "store": _store(missing),
        "environment": _environment(missing),
        **_data_and_models(missing),
        "cache": _cache(),
        "git": git_state(),
        "missing": missing,
    }


def _versions(missing: Findings) -> dict[str, str]:
    from packaging.requirements import Requirement

    for text in metadata.requires("rapid-lab") or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            version = "nothing"
        if version == "nothing" or not wanted.specifier.contains(version, prereleases=True):
            missing.add(f"{wanted.name}{wanted.specifier} is wanted, and {version} is installed", "make setup")
    if any(part.name.lower() == "torchvision" for part in metadata.distributions()):
        missing.add("torchvision is installed, and may break the import of BERT", "pip uninstall torchvision")
    return versions()


def _device(asked: str, missing: Findings) -> dict[str, Any]:
    import torch

    has_cuda = torch.cuda.is_available()
    found: dict[str, Any] = {
        "asked": asked,
        "chosen": "cuda" if has_cuda and asked != "cpu" else "cpu",
        "has_cuda": has_cuda,
        "cuda_build": torch.version.cuda,
        "threads": torch.get_num_threads(),
    }
    if asked == "cuda" and not has_cuda:
        why = "the driver shows no GPU" if torch.version.cuda else "this build of torch is for the CPU"
        build = f"pip install --force-reinstall torch=={metadata.version('torch').partition('+')[0]}"
        mend = "nvidia-smi" if torch.version.cuda else build
        missing.add(f"this machine has no CUDA device ({why})", f"{mend}, or use --device cpu")
    elif asked == "cuda":
        found["name"] = torch.cuda.get_device_name()
        found["tests"] = _gpu_tests(missing)
    return found


def _gpu_tests(missing: Findings) -> str:
    if not (ROOT / "tests").is_dir():
        return "not here: they come with the source, not with the package"
    done = subprocess.run(GPU_TESTS, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    # 5 is pytest's code for no tests at all.
    if done.returncode not in (0, 5):
        missing.add("the tests of the GPU fail", "python -m pytest -m gpu")
    return next(iter(done.stdout.strip().splitlines()[-1:]), "no answer")


def _store(missing: Findings) -> dict[str, Any]:
    from rapid_lab.tracking.door import sqlite_path, tracking_uri

    uri = tracking_uri()
    path = sqlite_path(uri)
    problem = _server_problem() if path is None else _file_problem(path)
    exists = path.exists() if path is not None else problem is None
    if problem:
        mend = "export MLFLOW_TRACKING_URI=sqlite:///mlflow.db, or start the server that it names"
        missing.add(f"the tracking store {redact(uri)} cannot be used: {problem}", mend)
    return {"uri": redact(uri), "is_reachable": problem is None, "exists": exists, "problem": problem}


def _file_problem(path: Path) -> str | None:
    """What keeps an sqlite store from being used; one that is not there yet is made by the first run."""
    if not path.exists():
        nearest = next(folder for folder in path.parents if folder.exists())
        return None if os.access(nearest, os.W_OK) else f"{nearest} cannot be written to"
    # A reader of a write-ahead log makes its files anew where nobody else has them open, unless told not to.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=5)) as connection:
            connection.execute("SELECT count(*) FROM experiments").fetchone()
    except sqlite3.Error as error:
        return f"{error}"
    return None


def _server_problem() -> str | None:
    from rapid_lab.tracking.door import reason
    from rapid_lab.tracking.store import check_store

    try:
        check_store()
    except Exception as error:
        return reason(error)
    return None


def _environment(missing: Findings) -> dict[str, Any]:
    from rapid_lab.environment import MEND, WITHOUT, registration

    try:
        path, state = registration()
    except SettingError as error:
        missing.add(f"`mlflow run .` has no environment: {error}", WITHOUT)
        return {"path": None, "state": "unknown"}
    if state in ("missing", "broken"):
        missing.add(f"`mlflow run .` has no environment ({state})", MEND)
    elif state == "elsewhere":
        missing.add(f"`mlflow run .` uses another environment, {path.resolve()}", MEND)
    return {"path": str(path), "state": state}


def _data_and_models(missing: Findings) -> dict[str, Any]:
    data = {dataset: _data_places(dataset, missing) for dataset in DATASETS}
    presets = [str(preset["teacher_model"]) for preset in DATASETS.values()]
    models = {name: _model_place(name, missing) for name in sorted({*presets, Settings.student_model})}
    has_all = all(places["local"] or places["hub_cache"] for places in data.values()) and all(models.values())
    hub = "not asked: everything is here" if has_all else _hub_answer()
    is_reached = hub == "in reach"
    for dataset, places in data.items():
        places["auto"] = _chosen_place(places, is_reached=is_reached)
        if places["auto"] == "twin":
            mend = f"export RAPID_DATA_DIR=FOLDER, where FOLDER/{_folder(dataset)} has train.csv and its report split"
            missing.add(f"{dataset} is neither here nor on a hub in reach: runs use its twin", mend)
    for name, place in models.items():
        if place is None and not is_reached:
            mend = (
                f"export RAPID_MODEL_DIR=FOLDER, where FOLDER/{name} has config.json and model.safetensors, "
                "or name other models with --teacher-model and --student-model"
            )
            missing.add(f"the model {name} is neither here nor on a hub in reach", mend)
    return {"hub": hub, "data": data, "models": models}


def _folder(dataset: str) -> str:
    from rapid_lab.data.sources import OFFICIAL

    return OFFICIAL[dataset].folder


def _data_places(dataset: str, missing: Findings) -> dict[str, Any]:
    from rapid_lab.data import hub, local
    from rapid_lab.data.sources import OFFICIAL

    official = OFFICIAL[dataset]
    root = os.environ.get("RAPID_DATA_DIR")
    folder = path_of(root) / official.folder if root else None
    found = str(folder) if folder and is_folder(folder) else None
    if folder and found:
        try:
            local.split_file(folder, ("train",))
            local.split_file(folder, official.report_names)
        except DataError as error:
            missing.add(f"the local copy of {dataset} cannot be used: {error}", f"mend the files in {folder}")
    owner_and_name = official.hub_name.repo.replace("/", "___")
    prepared = f"{owner_and_name}/{official.hub_name.config or '*'}/*/*/dataset_info.json"
    return {
        "local": found,
        "hub_cache": is_folder(hub.cache_folder()) and any(hub.cache_folder().glob(prepared)),
        "twin": True,
    }


def _chosen_place(places: dict[str, Any], *, is_reached: bool) -> str:
    """Where `--data auto` goes."""
    if places["local"]:
        return "local"
    return "hub" if places["hub_cache"] or is_reached else "twin"


def _model_place(name: str, missing: Findings) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    from rapid_lab.models import find_model

    try:
        place = find_model(name, setting="model", is_twin=False)
    except SettingError as error:
        missing.add(str(error), f"put config.json and model.safetensors into the folder, or remove it: {name}")
        return None
    if place != name:
        return place
    cached = [try_to_load_from_cache(name, file) for file in ("config.json", "model.safetensors")]
    return "hub cache" if all(isinstance(file, str) for file in cached) else None


def _hub_answer() -> str:
    from rapid_lab.reach import require_reach

    try:
        require_reach()
    except (DataError, SettingError) as error:
        return str(error)
    return "in reach"


def _cache() -> dict[str, Any]:
    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if is_folder(folder) else []
    return {"folder": str(folder), "exists": is_folder(folder), "size_mb": sum(map(_size, files)) / MIB}


def _size(path: Path) -> int:
    """Bytes; a file that another process has just removed has none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _rendered(document: dict[str, Any]) -> str:
    device, store, cache, git = (document[name] for name in ("device", "store", "cache", "git"))
    reached = "in use" if store["exists"] else "made by the first run"
    lines = [
        ("versions", ", ".join(f"{name} {version}" for name, version in document["versions"].items())),
        ("device", f"{device['chosen']}, {device['threads']} threads" + _after(device.get("name"))),
        ("store", f"{store['uri']} ({store['problem'] or reached})"),
        ("mlflow run", f"environment {document['environment']['state']}"),
        ("hub", document["hub"]),
        *((name, f"from {places['auto']}" + _after(places["local"])) for name, places in document["data"].items()),
        *((name, place or "not here") for name, place in document["models"].items()),
        ("cache", f"{cache['folder']}, {cache['size_mb']:.1f} MiB"),
        ("git", f"{git['commit'][:12]}{', changed' if git['is_dirty'] else ''}" if git else "no repository"),
    ]
    if "tests" in device:
        lines.insert(2, ("gpu tests", device["tests"]))
    width = max(len(name) for name, _ in lines)
    text = [f"{name.ljust(width)}  {value}" for name, value in lines]
    mends = [f"- {finding['what']}\n    {finding['mend']}" for finding in document["missing"]]
    return "\n".join([*text, "", *(["What is missing, and what mends it:", *mends] if mends else ["All is here."])])


def _after(text: str | None) -> str:
    return f", {text}" if text else ""
