"""A pipeline of its own on the shared servers, deployed from SQL that a test holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from followed_shop import rows

from lockstep.adapters.settings import Settings
from lockstep.adapters.verify import verify
from lockstep.deploying import deploy
from lockstep.runtime import Pipeline

SPEC = """\
name: {name}
storage: unused
catalog: lake
database: {name}
libraries:
  - glob: {{include: sql/**}}
configuration:
"""


@dataclass
class OnePipeline:
    """`name` is also its database's and its topic's; `said` is what its stages told."""

    spark: Any
    settings: Settings
    name: str
    folder: Path
    said: list[str] = field(default_factory=list, kw_only=True)

    def deploy_sql(self, text: str, **configuration: str | int) -> None:
        """In place of the project that is there. Settings are named without `lockstep.`."""
        (self.folder / "sql").mkdir(parents=True, exist_ok=True)
        given = {"rows_per_step": 1_000_000, **configuration}
        settings = "".join(f'  lockstep.{key}: "{value}"\n' for key, value in given.items())
        spec = SPEC.format(name=self.name) + settings
        (self.folder / "spark-pipeline.yml").write_text(spec, "utf-8")
        (self.folder / "sql" / "all.sql").write_text(text, "utf-8")
        deploy(str(self.folder), self.settings)

    def produce(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Records of its topic, as JSON."""
        producer = Producer({"bootstrap.servers": self.settings.kafka})
        for row in rows:
            producer.produce(self.name, json.dumps(row).encode())
        assert producer.flush(30) == 0

    def advance(self, opened: Pipeline | None = None) -> None:
        """All that is there now, by one that is open or one of its own."""
        pipeline = Pipeline(self.name, self.settings) if opened is None else opened
        with nullcontext() if opened else pipeline:
            while pipeline.plan(None, self.said.append).interval is not None:
                pipeline.run(self.said.append)
                pipeline.publish(self.said.append)

    def view(self, name: str) -> Counter[tuple[Any, ...]]:
        return rows(self.spark.table(f"lake.{self.name}.{name}"))

    def is_right(self) -> bool:
        """Whether every view is what DuckDB makes of the records."""
        return all(check.equal for check in verify(self.name, self.settings, self.said.append))
