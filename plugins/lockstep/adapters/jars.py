"""The jars of Spark and of the embedded broker: by Maven coordinates and SHA-256, from one lock file.

A jar is fetched once, checked, and kept in a cache; every later use reads the cache and checks again.
LOCKSTEP_CACHE moves the cache, LOCKSTEP_MAVEN_URL names another repository with Maven's layout.
"""

from __future__ import annotations

import logging
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.control.ports import Progress
from lockstep.errors import Refused, Unreachable, WrongUse
from lockstep.threads import in_parallel

__all__ = ["LOCK_FILE", "Jar", "jar_paths", "locked_jars"]

LOCK_FILE = Path(__file__).parent.parent / "jars.toml"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
TRIES = 3


@dataclass(frozen=True, order=True)
class Jar:
    """One file of a Maven repository."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        parts = filter(None, (self.artifact, self.version, self.classifier))
        return f"{'-'.join(parts)}.jar"

    @property
    def path(self) -> str:
        """Below the repository's address, and below the cache."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def locked_jars(group: str) -> tuple[Jar, ...]:
    """The jars of a group (`spark`, `broker`, `queries`, `flink`), in the order of the lock file.

    Raises WrongUse.
    """
    groups: Mapping[str, Mapping[str, str]] = tomllib.loads(LOCK_FILE.read_text("utf-8"))
    if group not in groups:
        raise WrongUse(
            f"no group of jars is called {group!r}",
            expected=", ".join(sorted(groups)),
            found=group,
        )
    jars = []
    for coordinates, sha256 in groups[group].items():
        maven_group, artifact, version, *classifier = coordinates.split(":")
        jars.append(Jar(maven_group, artifact, version, sha256, *classifier))
    return tuple(jars)


def jar_paths(group: str, progress: Progress | None = None) -> tuple[Path, ...]:
    """Paths of a group's jars, in the order of the lock file; what is missing is fetched first.

    `progress` is told of each download, one line each (default: standard error). Raises Unreachable
    where the repository does not answer, Refused where a file is not the one that is locked.
    """
    # pooch and what it imports cost a tenth of a second: not for those who only name a group.
    import pooch

    pooch.get_logger().setLevel(logging.ERROR)
    jars = locked_jars(group)
    say = progress or _to_standard_error
    address = os.environ.get("LOCKSTEP_MAVEN_URL", MAVEN_CENTRAL).rstrip("/")
    cache = pooch.create(
        path=_cache_folder(pooch.os_cache("lockstep")),
        base_url=f"{address}/",
        registry={jar.path: f"sha256:{jar.sha256}" for jar in jars},
        retry_if_failed=TRIES - 1,
    )

    def fetched(jar: Jar) -> Path:
        if not cache.abspath.joinpath(jar.path).exists():
            say(f"fetching {jar.file_name}")
        try:
            return Path(cache.fetch(jar.path))
        except ValueError as error:
            raise Refused(
                f"{jar.file_name} from {address} is not the file that is locked",
                expected=f"SHA-256 {jar.sha256}",
                found=" ".join(str(error).split())[:300],
                next_step="see what LOCKSTEP_MAVEN_URL names, then run the command again",
            ) from error
        except OSError as error:
            raise Unreachable(
                f"{jar.file_name} cannot be fetched",
                expected=f"an answer from {address}",
                found=" ".join(str(error).split())[:300],
                next_step="see to the connection, or set LOCKSTEP_MAVEN_URL to a repository that "
                "can be reached, then run the command again",
            ) from error

    return tuple(in_parallel(fetched, jars))


def _cache_folder(default: object) -> Path:
    return Path(os.environ.get("LOCKSTEP_CACHE") or str(default)) / "jars"


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    for name in ("spark", "broker"):
        jar_paths(name)
