"""The Java that runs the broker and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lockstep.errors import WrongUse

__all__ = ["java_command", "major_version"]

OLDEST = 17
ADVICE = (
    "install Java 17 or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17), or set JAVA_HOME to it"
)


def java_command() -> str:
    """Path of Java 17 or newer: that of JAVA_HOME, else the first on PATH. Raises WrongUse."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if java is None:
        found = f"no program bin/java in JAVA_HOME={home}" if home else "no `java` on PATH"
        raise WrongUse(
            "Java is missing", expected="Java 17 or newer", found=found, next_step=ADVICE
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    if (major := major_version(said)) < OLDEST:
        raise WrongUse(
            "Java is too old",
            expected="Java 17 or newer",
            found=f"{java} is version {major}" if major else f"{java}: {said.strip()[:200]}",
            next_step=ADVICE,
        )
    return java


def major_version(said: str) -> int:
    """The major version in what `java -version` says; 0 where there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match.group(1)) if match else 0
