"""Where things are: the folder of the installation and the addresses in it.

Each setting is taken from the environment (`LOCKSTEP_<NAME>`), else from `stack.json` in the home
folder, which `lockstep up` writes, else from the default.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.control.job import CopySettings
from lockstep.errors import WrongUse

__all__ = ["Settings"]

KAFKA_DEFAULT = "127.0.0.1:9092"
DEFAULT_COPIES_GIB = "16"


@dataclass(frozen=True)
class Settings:
    """`home` is LOCKSTEP_HOME, or ~/.lockstep. An empty address means: nothing is running.

    `pod_template` is a file, for Kubernetes; without one nothing is said of where executors run.
    `copies_gib` is how much of the disk copies of data files may take, below `home`.
    """

    home: Path
    store_url: str
    catalog_uri: str
    warehouse: str
    spark_remote: str
    kafka: str
    airflow_url: str
    spark_ui: str = ""
    spark_master: str = "local[2]"
    pod_template: str = ""
    copies_gib: str = DEFAULT_COPIES_GIB

    @property
    def copies(self) -> CopySettings | None:
        """Where copies of data files are kept, None where `copies_gib` is 0. Raises WrongUse."""
        try:
            most_bytes = int(float(self.copies_gib) * (1 << 30))
        except (ValueError, OverflowError):
            most_bytes = -1
        if most_bytes < 0:
            raise WrongUse(
                "LOCKSTEP_COPIES_GIB is no amount",
                expected="how many GiB copies of data files may take on this machine, or 0",
                found=self.copies_gib,
                next_step="correct or unset LOCKSTEP_COPIES_GIB",
            )
        return CopySettings(str(self.home / "copies"), most_bytes) if most_bytes else None

    def variables(self) -> Mapping[str, str]:
        """What `${...}` in a project's files can name beside its own configuration.

        Where no broker is known, `lockstep.kafka` is where Kafka's own quick start puts one, so that
        projects can be read; whatever goes on to Kafka asks `runtime.require_broker` first."""
        return {"lockstep.kafka": self.kafka or KAFKA_DEFAULT}

    @staticmethod
    def load(environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings of this process."""
        env = os.environ if environment is None else environment
        home = Path(env.get("LOCKSTEP_HOME") or Path.home() / ".lockstep").resolve()
        stack_file = home / "stack.json"
        stack = json.loads(stack_file.read_text()) if stack_file.exists() else {}

        def setting(name: str, default: str) -> str:
            return env.get(f"LOCKSTEP_{name.upper()}") or stack.get(name) or default

        return Settings(
            home=home,
            store_url=setting("store_url", f"sqlite:///{home}/control.db"),
            catalog_uri=setting("catalog_uri", f"sqlite:///{home}/catalog.db"),
            warehouse=setting("warehouse", f"file://{home}/warehouse"),
            spark_remote=setting("spark_remote", ""),
            kafka=setting("kafka", ""),
            airflow_url=setting("airflow_url", ""),
            spark_ui=setting("spark_ui", ""),
            spark_master=setting("spark_master", "local[2]"),
            pod_template=setting("pod_template", ""),
            copies_gib=setting("copies_gib", DEFAULT_COPIES_GIB),
        )
