"""What `make audit` asks for, and what it says of the answers; no network is needed for either."""

import importlib.util
import re
from types import ModuleType

import pytest

from rapid_lab.tracking.provenance import ROOT


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_in_the_lock_and_torch_is_asked_for_by_name_and_version(audit: ModuleType) -> None:
    pins = audit.pins()
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert len(pins) == len(re.findall("^[a-z]", lock, re.MULTILINE)) + 1
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.+]+( ; .*)?", pin) for pin in pins)
    (torch,) = [pin for pin in pins if pin.startswith("torch==")]
    assert f"TORCH := {torch.removeprefix('torch==')}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_an_advisory_is_told_with_the_version_that_mends_it_and_fails(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    advisories = [{"id": "PYSEC-1", "fix_versions": ["2.14", "2.13.1"]}, {"id": "PYSEC-2", "fix_versions": []}]
    found = [
        {"name": "torch", "version": "2.13.0", "vulns": advisories},
        {"name": "rich", "version": "14", "vulns": []},
    ]
    assert audit.told(found) == 1
    assert capsys.readouterr().out.splitlines() == [
        "torch 2.13.0: PYSEC-1, mended in 2.14, 2.13.1",
        "torch 2.13.0: PYSEC-2, mended in no version",
        "2 of 2 pins checked, 2 advisories",
    ]


def test_what_nothing_is_known_of_is_named_and_is_not_called_checked(
    audit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = {"name": "torch", "skip_reason": "not on the index"}
    assert audit.told([{"name": "rich", "version": "14", "vulns": []}, skipped]) == 0
    shown = capsys.readouterr()
    assert shown.out == "1 of 2 pins checked, 0 advisories\n"
    assert shown.err == "make audit: nothing is known of torch\n"
    assert audit.told([skipped]) == 0
    assert "nothing was checked, because the network does not allow it" in capsys.readouterr().err
