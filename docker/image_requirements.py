"""What an image installs of the lock file: all but the tools of developers, Ray, and what draws static figures.

    python image_requirements.py pyproject.toml requirements.lock > image.lock

The lock says of every package which others ask for it. Kept are the packages that the project, its build and its
extras for a server ask for, and what these ask for in turn, each with its version and hashes as they stand there.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXTRAS = ("postgres", "server")


def name_of(requirement: str) -> str:
    """The package that a requirement is for.

    >>> name_of("Psycopg_Binary[pool]>=3.2; sys_platform == 'linux'")
    'psycopg-binary'
    """
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def asked_for(project: Mapping[str, Any]) -> set[str]:
    """The packages that pyproject.toml names for an image."""
    own, extras = project["project"], project["project"]["optional-dependencies"]
    asked = [
        *project["build-system"]["requires"],
        *own["dependencies"],
        *(one for name in EXTRAS for one in extras[name]),
    ]
    return {name_of(requirement) for requirement in asked}


def askers(entry: str) -> set[str]:
    """The packages that ask for one of the lock, by its remarks.

    >>> sorted(askers("a==1\\n    # via\\n    #   b\\n    #   rapid-lab (pyproject.toml)\\n"))
    ['b', 'rapid-lab']
    """
    _, _, remarks = entry.partition("# via")
    return {name_of(line) for line in remarks.replace("#", "").splitlines() if line.strip()}


def image_requirements(project: Mapping[str, Any], lock: str) -> str:
    """The part of the lock that an image needs."""
    entries = [(name_of(entry), entry) for entry in re.split(r"(?m)^(?=\w)", lock) if entry]
    kept = asked_for(project)
    while more := {name for name, entry in entries if name not in kept and askers(entry) & kept}:
        kept |= more
    return "".join(entry for name, entry in entries if name in kept)


if __name__ == "__main__":
    project, lock = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    print(image_requirements(tomllib.loads(project), lock), end="")
