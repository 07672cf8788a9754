"""Known advisories of what requirements.lock pins, and of torch, asked of the package index by pip-audit.

pip-audit is no dependency: it is installed into a folder that is thrown away. Where the network does not allow it,
that is said, and nothing is claimed.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNCHECKED = "make audit: nothing was checked, because the network does not allow it"


def main() -> int:
    """1 where an advisory is known, and pip-audit's own words about it; 0 where none is, or nobody can be asked."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        installed = subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"], check=False)  # noqa: S603
        if installed.returncode:
            print(f"{UNCHECKED}: pip-audit cannot be installed", file=sys.stderr)
            return 0
        asked_for = Path(folder) / "pins.txt"
        asked_for.write_text("\n".join(pins()), encoding="utf-8")
        # Everything is pinned, so nothing has to be resolved or downloaded.
        options = ["--requirement", str(asked_for), "--no-deps", "--disable-pip"]
        asked = [python, "-m", "pip_audit", *options, "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{UNCHECKED}: pip-audit has no answer\n{done.stderr}", file=sys.stderr)
        return 0
    return told(found)


def pins() -> list[str]:
    """What is installed, as name==version: the lock without its hashes, and torch, which is not in the lock."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = [line.removesuffix(" \\") for line in lock if line and line[0] not in " #"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*locked, *(line for line in project["dependencies"] if line.startswith("torch=="))]


def told(found: list[dict[str, Any]]) -> int:
    """Say what was found, and what could not be asked for."""
    unknown = [pin["name"] for pin in found if "skip_reason" in pin]
    advisories = [(pin["name"], pin["version"], advisory) for pin in found for advisory in pin.get("vulns", ())]
    for name, version, advisory in advisories:
        fixed = ", ".join(advisory["fix_versions"]) or "no version"
        print(f"{name} {version}: {advisory['id']}, mended in {fixed}")
    print(f"{len(found) - len(unknown)} of {len(found)} pins checked, {len(advisories)} advisories")
    if unknown:
        print(f"make audit: nothing is known of {', '.join(unknown)}", file=sys.stderr)
    if len(unknown) == len(found):
        print(f"{UNCHECKED}: pip-audit reached no index of advisories", file=sys.stderr)
    return 1 if advisories else 0


if __name__ == "__main__":
    sys.exit(main())
