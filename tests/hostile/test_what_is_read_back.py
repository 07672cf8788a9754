"""Only safetensors, JSON, TOML and parquet are read back, nothing is evaluated, and what is installed is pinned."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hostile.commands import quiet_machine, tried
from studies import ROOT

SOURCES = [
    path
    for name in ("rapid_lab", "sweeps", "benchmarks", "docker", ".ci")
    for path in sorted((ROOT / name).rglob("*.py"))
]
# Modules that run code while they read, and those for which nothing here has a use.
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "ruamel",
    "code",
}
CALLS = {
    "eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.package", "os.system", "os.popen",
    "pd.read_pickle", "pandas.read_pickle", "pickle.load", "pickle.loads", "yaml.load", "yaml.load_all",
    "yaml.unsafe_load", "yaml.full_load",
    "mlflow.pyfunc.load_model", "mlflow.transformers.load_model", "mlflow.pytorch.load_model", "torch.hub.load",
    "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
FORBIDDEN_VALUES = {"shell": True, "allow_pickle": True, "trust_remote_code": True, "weights_only": False}


def faults(source: str) -> list[str]:
    """What a source does that it may not, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: imports {name}" for name in names if name.partition(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [f"{node.lineno}: calls {name}"] if name in CALLS else []
            found += _values(node.lineno, [(word.arg, word.value) for word in node.keywords])
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            named = [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
            found += _values(node.lineno, named)
    return found


def _values(line: int, pairs: Sequence[tuple[object, ast.expr]]) -> list[str]:
    """What is set to its forbidden value, or to one that cannot be seen."""
    found = []
    for name, value in pairs:
        if name in FORBIDDEN_VALUES:
            allowed = not FORBIDDEN_VALUES[str(name)]
            is_allowed = isinstance(value, ast.Constant) and value.value is allowed
            found += [] if is_allowed else [f"{line}: sets {name} to {ast.unparse(value)}"]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_source_loads_what_could_run(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "yaml.load(text, Loader=yaml.Loader)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
        "numpy.load(path, allow_pickle=True)",
        "pandas.read_pickle(path)",
        "subprocess.run(text, shell=True)",
        "load(name, trust_remote_code=True)",
        "options = {'trust_remote_code': answer}",
        "os.system(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert faults(source) != []


def test_what_is_loaded_of_a_model_is_safetensors() -> None:
    text = (ROOT / "rapid_lab" / "models.py").read_text(encoding="utf-8")
    assert "use_safetensors=True" in text
    assert '"trust_remote_code": False' in text
    assert not re.search(r"from_pretrained\((?!.*\*\*options)", text)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quiet_machine(tmp_path_factory.mktemp("machine")) as folder:
        yield folder


BERT = {"model_type": "bert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
OWN = {"auto_map": {"AutoConfig": "trap.Trap", "AutoTokenizer": ["trap.Trap", None]}, "model_type": "own"}


@pytest.mark.parametrize("config", [BERT, OWN, {**BERT, **OWN}], ids=["a pickle", "code", "code of a known model"])
def test_neither_code_nor_a_pickle_in_the_folder_of_a_model_runs(
    machine: Path, tmp_path: Path, config: dict[str, object]
) -> None:
    texts, model, trap = tmp_path / "texts", tmp_path / "model", tmp_path / "sprung"
    for folder in (texts, model):
        folder.mkdir()
    for split in ("train", "test"):
        (texts / f"{split}.csv").write_text("label,text\n0,a\n1,b\n0,c\n1,d\n", encoding="utf-8")
    (model / "trap.py").write_text(f"open({str(trap)!r}, 'w').close()\nclass Trap: pass\n", encoding="utf-8")
    # A pickle that would make the file: the opcodes of builtins.open(path, "w").
    (model / "pytorch_model.bin").write_bytes(b"cbuiltins\nopen\n(V%s\nVw\ntR." % str(trap).encode())
    (model / "model.safetensors").write_bytes(b"")
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (model / "tokenizer_config.json").write_text(json.dumps(OWN), encoding="utf-8")
    ending = tried("run", ["--data", "auto", "--dataset", str(texts), "--student-model", str(model)])
    assert ending.code == 2
    assert "Traceback" not in ending.err
    assert not trap.exists()


def test_a_folder_with_a_pickle_alone_is_refused(machine: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text("label,text\n0,a\n1,b\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(BERT), encoding="utf-8")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    ending = tried("run", ["--data", "auto", "--dataset", f"{tmp_path}/", "--student-model", str(tmp_path)])
    assert ending.code == 2
    assert "has no safetensors file, and no other format is read" in ending.err


def test_everything_that_is_locked_is_pinned_with_hashes_and_from_no_place_of_its_own() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^\s*#.*\n?", "", text).strip())
    assert len(entries) > 100
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._\[\]-]+==[^\s;]+", entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
    assert not re.search(r"://|--index|--find-links|--extra", text)


def test_no_parameter_of_the_project_takes_an_address() -> None:
    text = (ROOT / "MLproject").read_text(encoding="utf-8")
    for name, kind in re.findall(r"(\w+): \{type: (\w+)", text):
        assert kind != "uri", name
        assert not re.search(r"uri|url|storage|password|secret|address|token", name), name
