"""Which Iceberg catalog a project's tables are in, said twice: for Spark and for PyIceberg.

Without `lockstep.catalog.*` keys it is the installation's own: a SQL catalog at
`Settings.catalog_uri` with its files below `Settings.warehouse`. With them, they are PyIceberg's
properties (`type`, `uri`, `warehouse`, credentials, `s3.*`), and Spark gets the same in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from lockstep.adapters.settings import Settings
from lockstep.control.job import CatalogSettings
from lockstep.errors import WrongUse
from lockstep.sql.reading.spec import CATALOG_PREFIX
from lockstep.sqlite import CATALOG_WAIT_SECONDS

__all__ = ["catalog_settings"]

Properties = Mapping[str, str]


def catalog_settings(
    project_catalog: str, database: str, configuration: Mapping[str, str], settings: Settings
) -> CatalogSettings:
    """The catalog under the name that the project's spec gives it. Connects to nothing.

    Raises WrongUse where the keys name no catalog that both Spark and PyIceberg know.
    """
    _check_names(project_catalog, database)
    given = {
        key.removeprefix(CATALOG_PREFIX): str(value)
        for key, value in configuration.items()
        if key.startswith(CATALOG_PREFIX)
    }
    if given:
        is_http = given.get("uri", "").startswith("http")
        properties = {"type": "rest" if is_http else "sql", **given}
    else:
        properties = {"type": "sql", "uri": settings.catalog_uri, "warehouse": settings.warehouse}
    kind = properties["type"]
    if kind not in _TRANSLATIONS:
        raise _wrong(f"{CATALOG_PREFIX}type is {kind!r}", " or ".join(sorted(_TRANSLATIONS)), kind)
    for key in ("uri", "warehouse"):
        if not properties.get(key):
            raise _wrong(
                f"{CATALOG_PREFIX}{key} is missing for a catalog of type {kind}", key, "nothing"
            )
    spark, pyiceberg = _TRANSLATIONS[kind](properties)
    # PyIceberg moves refs beside Spark: a cached table would not know a branch made just now.
    return CatalogSettings(
        project_catalog,
        database,
        {**spark, "cache-enabled": "false"},
        pyiceberg,
        settings.copies,
    )


def _check_names(catalog: str, database: str) -> None:
    """`spark_catalog` is Spark's own session catalog, which Iceberg would have to be wrapped around."""
    if not catalog or catalog == "spark_catalog":
        raise WrongUse(
            "the project's catalog must be an Iceberg catalog of its own",
            expected="a name such as lake in `catalog:`",
            found=catalog or "nothing",
            next_step="correct `catalog:` in spark-pipeline.yml",
        )
    if not database or "." in database:
        raise WrongUse(
            "the project's database must be one name",
            expected="a name without dots in `database:`",
            found=database or "nothing",
            next_step="correct `database:` in spark-pipeline.yml",
        )


def _wrong(message: str, expected: str, found: str) -> WrongUse:
    return WrongUse(
        message,
        expected=expected,
        found=found,
        next_step=f"correct the {CATALOG_PREFIX}* keys in spark-pipeline.yml and deploy again",
    )


def _rest(properties: Properties) -> tuple[Properties, Properties]:
    """Both sides know the REST catalog's own keys; those of the object store are named apart."""
    return _with_files(properties, dict(properties)), properties


def _sql(properties: Properties) -> tuple[Properties, Properties]:
    uri = urlsplit(properties["uri"])
    dialect = uri.scheme.partition("+")[0]
    if dialect == "sqlite":
        jdbc, sqlalchemy = _sqlite(uri.path, dict(parse_qsl(uri.query)))
        credentials: Properties = {}
    elif dialect in ("postgresql", "postgres"):
        jdbc = f"jdbc:postgresql://{uri.hostname}:{uri.port or 5432}{uri.path}"
        if uri.query:
            jdbc += f"?{uri.query}"
        sqlalchemy = properties["uri"].replace("postgres://", "postgresql://", 1)
        named = {"jdbc.user": uri.username, "jdbc.password": uri.password}
        credentials = {key: unquote(value) for key, value in named.items() if value}
    else:
        raise _wrong(
            f"{CATALOG_PREFIX}uri is of a database that the catalog cannot be in",
            "sqlite:///… or postgresql://…",
            uri.scheme or "an address without a scheme",
        )
    spark = {"type": "jdbc", "uri": jdbc, "jdbc.schema-version": "V1", **credentials}
    others = {key: value for key, value in properties.items() if key not in ("type", "uri")}
    return (
        _with_files(properties, {**others, **spark}),
        {**properties, "type": "sql", "uri": sqlalchemy, "schema_version": "v1"},
    )


def _sqlite(path: str, query: dict[str, str]) -> tuple[str, str]:
    """JDBC and SQLAlchemy URL of a file; SQLAlchemy's has one slash more before an absolute path."""
    file = path.removeprefix("/")
    if not file or file == ":memory:":
        raise _wrong(
            f"{CATALOG_PREFIX}uri names no file",
            "sqlite:///<path of a file>",
            "a database in memory",
        )
    jdbc = f"jdbc:sqlite:{file}?busy_timeout={CATALOG_WAIT_SECONDS * 1000}&journal_mode=WAL"
    sqlalchemy = f"sqlite:///{file}?" + urlencode({"timeout": str(CATALOG_WAIT_SECONDS), **query})
    return jdbc, sqlalchemy


_S3_FOR_SPARK = {
    "s3.endpoint": "s3.endpoint",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "s3.session-token": "s3.session-token",
    "s3.region": "client.region",
}


def _with_files(properties: Properties, spark: Mapping[str, str]) -> Properties:
    """Object storage: PyIceberg's keys in the words of Iceberg's S3FileIO."""
    translated = {
        other: properties[key] for key, other in _S3_FOR_SPARK.items() if key in properties
    }
    kept = {key: value for key, value in spark.items() if key not in _S3_FOR_SPARK}
    if translated:
        kept.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
        kept.setdefault("s3.path-style-access", "true")
    return {**kept, **translated}


_TRANSLATIONS: Mapping[str, Callable[[Properties], tuple[Properties, Properties]]] = {
    "rest": _rest,
    "sql": _sql,
}
