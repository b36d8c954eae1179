"""Recursions as people write them, over t, u and v; see `queries`."""

from __future__ import annotations

from itertools import pairwise

RECURSION = {
    "series": "WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 12) "
    "SELECT r.n, t.b FROM r JOIN t ON t.a = r.n",
    "series of rows": "WITH RECURSIVE r AS (SELECT a, b FROM t WHERE a < b "
    "UNION ALL SELECT a + 1, b FROM r WHERE a + 1 < b) SELECT a, b FROM r",
    "paths": "WITH RECURSIVE r(x, y, n) AS (SELECT a, d, 1 FROM u "
    "UNION ALL SELECT r.x, u.d, n + 1 FROM r JOIN u ON r.y = u.a WHERE n < 4) SELECT x, y, n FROM r",
    "closure": "WITH RECURSIVE r(x, y, n) AS (SELECT a, d, 1 FROM u "
    "UNION ALL SELECT r.x, u.d, n + 1 FROM r JOIN u ON r.y = u.a WHERE n < 5) "
    "SELECT DISTINCT x, y FROM r",
    "reached": "WITH RECURSIVE r(k, n) AS (SELECT DISTINCT a, 0 FROM t WHERE b > 2 "
    "UNION ALL SELECT u.d, n + 1 FROM u, r WHERE u.a = r.k AND n < 3) "
    "SELECT k, min(n) AS steps FROM r GROUP BY k",
    "hierarchy": "WITH RECURSIVE under(top, k) AS (SELECT d, d FROM v WHERE f > 1 "
    "UNION ALL SELECT top, u.a FROM under JOIN u ON u.d = under.k AND u.a > u.d) "
    "SELECT top, count(*) AS n, sum(t.b) AS total FROM under JOIN t ON t.a = under.k GROUP BY top",
    "two edges": "WITH RECURSIVE r(k, p, n) AS (SELECT a, '', 0 FROM t WHERE ok UNION ALL "
    "SELECT v.f, concat(p, ',', u.e), n + 1 FROM r JOIN u ON r.k = u.a JOIN v ON v.d = u.d "
    "WHERE n < 3) SELECT * FROM r",
    "two steps": "WITH RECURSIVE r AS (SELECT a AS k, 0 AS n FROM t UNION ALL ("
    "SELECT u.d, n + 1 FROM r JOIN u ON r.k = u.a WHERE n < 2 UNION ALL "
    "SELECT v.f, n + 1 FROM r JOIN v ON r.k = v.d WHERE n < 2)) SELECT k, n FROM r",
    "without equality": "WITH RECURSIVE r AS (SELECT a AS k FROM t WHERE a = 0 "
    "UNION ALL SELECT v.d FROM r JOIN v ON v.d > r.k) SELECT k FROM r",
    "left join": "WITH RECURSIVE r AS (SELECT a AS k, 0 AS n FROM t WHERE b = 1 "
    "UNION ALL SELECT u.d, n + 1 FROM r LEFT JOIN u ON r.k = u.a WHERE n < 3) SELECT * FROM r",
    "semi join": "WITH RECURSIVE r AS (SELECT a FROM t WHERE a = 0 "
    "UNION ALL SELECT r.a + 1 FROM r WHERE r.a IN (SELECT d FROM u)) SELECT a FROM r",
    "anti join": "WITH RECURSIVE r AS (SELECT a FROM t WHERE a < 2 "
    "UNION ALL SELECT r.a + 1 FROM r LEFT ANTI JOIN v ON v.d = r.a WHERE r.a < 9) SELECT a FROM r",
    "exploded": "WITH RECURSIVE r AS (SELECT a, arr, 0 AS n FROM t WHERE a > 0 "
    "UNION ALL SELECT q.y, r.arr, n + 1 FROM r LATERAL VIEW explode(arr) q AS y WHERE n < 2) "
    "SELECT a, n FROM r",
    "read twice": "WITH RECURSIVE r AS (SELECT a AS k, 0 AS n FROM t WHERE a = 1 "
    "UNION ALL SELECT u.d, n + 1 FROM r JOIN u ON r.k = u.a WHERE n < 2) "
    "SELECT p.k, q.n FROM r p LEFT JOIN r q ON p.n = q.n + 1",
    "of a recursion": "WITH RECURSIVE r AS (SELECT a AS n FROM t WHERE a > 0 "
    "UNION ALL SELECT n + 1 FROM r WHERE n < 4), s AS (SELECT n AS m, 0 AS k FROM r "
    "UNION ALL SELECT v.f, k + 1 FROM s JOIN v ON v.d = s.m WHERE k < 2) SELECT m, k FROM s",
    "inside": "SELECT t.b, q.n FROM t JOIN (WITH RECURSIVE r AS (SELECT d AS n FROM v "
    "UNION ALL SELECT n + 2 FROM r WHERE n < 3) SELECT n FROM r) q ON t.a = q.n",
    "with a subquery": "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL (WITH q AS "
    "(SELECT a + 1 AS m FROM r WHERE a < 3) SELECT m FROM q)) SELECT a FROM r",
    "of grouped edges": "WITH RECURSIVE e AS (SELECT a, max(d) AS d FROM u GROUP BY a), "
    "r AS (SELECT a, 0 AS n FROM t UNION ALL SELECT e.d, n + 1 FROM r JOIN e ON r.a = e.a "
    "WHERE n < 3) SELECT a, n FROM r",
    "cast to the anchor": "WITH RECURSIVE r AS (SELECT CAST(a AS BIGINT) AS n FROM t "
    "UNION ALL SELECT CAST(n + 1 AS INT) FROM r WHERE n < 4) SELECT n FROM r",
    "level limit": "WITH RECURSIVE r(n) MAX RECURSION LEVEL 120 AS "
    "(SELECT min(d) FROM v WHERE d = 1 UNION ALL SELECT n + 1 FROM r WHERE n < 110) "
    "SELECT max(n) AS top FROM r",
    "one branch": "WITH RECURSIVE r AS (SELECT a FROM t WHERE a = 2 "
    "UNION ALL SELECT a + 1 FROM r WHERE a < 4) SELECT a FROM r UNION ALL SELECT f FROM v",
}

LEVELS = {
    "distinct": "WITH RECURSIVE r(k, n) AS (SELECT DISTINCT a, 0 FROM t WHERE b > 2 UNION ALL "
    "SELECT DISTINCT u.d, n + 1 FROM u, r WHERE u.a = r.k AND n < 3) SELECT k, n FROM r",
    "joined with itself": "WITH RECURSIVE r(x, y, n) AS (SELECT a, d, 1 FROM u UNION ALL "
    "SELECT p.x, q.y, p.n + 1 FROM r p JOIN r q ON p.y = q.x WHERE p.n < 3) SELECT x, y, n FROM r",
    "three of itself": "WITH RECURSIVE r AS (SELECT a AS k, b AS n FROM t UNION ALL SELECT p.k + 1, q.n "
    "FROM r p JOIN r q ON p.k = q.k JOIN r s ON s.k = q.k AND s.n > q.n WHERE p.k < 3) SELECT * FROM r",
    "except": "WITH RECURSIVE r(k, n) AS (SELECT a, 0 FROM t UNION ALL (SELECT d, n + 1 FROM r JOIN u "
    "ON u.a = k WHERE n < 3 EXCEPT SELECT f, n + 1 FROM r JOIN v ON v.d = k)) SELECT * FROM r",
    "except others": "WITH RECURSIVE r AS (SELECT a AS k FROM t WHERE a = 0 UNION ALL "
    "(SELECT k + 1 FROM r WHERE k < 6 EXCEPT SELECT d FROM v)) SELECT k FROM r",
    "intersect": "WITH RECURSIVE r AS (SELECT a AS k FROM t WHERE a <= 1 UNION ALL "
    "(SELECT k + 1 FROM r WHERE k < 6 INTERSECT SELECT d FROM u)) SELECT k FROM r",
    "in itself": "WITH RECURSIVE r AS (SELECT a, b FROM t UNION ALL SELECT a + 1, b FROM r "
    "WHERE a < 3 AND a + 1 IN (SELECT a FROM r)) SELECT a, b FROM r",
    "not in itself": "WITH RECURSIVE r(k, n) AS (SELECT a, 0 FROM t WHERE b > 1 UNION ALL "
    "SELECT u.d, n + 1 FROM r JOIN u ON u.a = r.k WHERE n < 3 AND NOT EXISTS "
    "(SELECT 1 FROM r s WHERE s.k = u.d)) SELECT k, n FROM r",
    "not among itself": "WITH RECURSIVE r(k, n) AS (SELECT a, 0 FROM t WHERE b > 1 UNION ALL "
    "SELECT u.d, n + 1 FROM r JOIN u ON u.a = r.k WHERE n < 3 AND u.d NOT IN (SELECT k FROM r)) "
    "SELECT k, n FROM r",
    "of what is in it": "WITH RECURSIVE r(k, n) AS (SELECT a, 3 FROM t WHERE b > 2 UNION ALL "
    "SELECT d, a FROM u WHERE a < 3 AND d > a AND a IN (SELECT k FROM r WHERE n > 0)) SELECT * FROM r",
    "of what is not in it": "WITH RECURSIVE r(k, n) AS (SELECT a, 3 FROM t WHERE b > 2 UNION ALL "
    "SELECT d, a FROM u WHERE a < d AND NOT EXISTS (SELECT 1 FROM r WHERE k < u.d + 3)) SELECT * FROM r",
    "left join on more": "WITH RECURSIVE r AS (SELECT a AS k, 0 AS n FROM t WHERE b = 1 UNION ALL "
    "SELECT u.d, n + 1 FROM r LEFT JOIN u ON r.k = u.a AND u.d > r.n WHERE n < 3) SELECT * FROM r",
    "exists without equality": "WITH RECURSIVE r AS (SELECT a AS k FROM t WHERE a < 2 UNION ALL "
    "SELECT k + 1 FROM r WHERE k < 8 AND EXISTS (SELECT 1 FROM v WHERE d > k)) SELECT k FROM r",
    "grouped": "WITH RECURSIVE r(k, w, n) AS (SELECT a, b, 0 FROM t UNION ALL "
    "SELECT u.d, max(w), n + 1 FROM r JOIN u ON u.a = r.k WHERE n < 2 GROUP BY u.d, n) "
    "SELECT k, w, n FROM r",
    "of two types": "WITH RECURSIVE r AS (SELECT a AS k, b AS w FROM t UNION ALL SELECT k + 1, max(w) "
    "FROM r WHERE k < 2 GROUP BY k), s AS (SELECT a AS k, c AS w FROM t UNION ALL SELECT k + 1, max(w) "
    "FROM s WHERE k < 2 GROUP BY k) SELECT k, CAST(w AS STRING) AS w FROM r "
    "UNION ALL SELECT k, w FROM s",
    "all of a level": "WITH RECURSIVE r(w, n) AS (SELECT b, 0 FROM t WHERE a > 0 UNION ALL "
    "SELECT max(w), CAST(count(*) AS INT) FROM r WHERE w > 0 AND n < 1 HAVING max(w) IS NOT NULL), "
    "s(k) AS (SELECT a FROM u UNION ALL SELECT k + 1 FROM s "
    "WHERE k < 3 AND k >= (SELECT coalesce(avg(k), 1) FROM s WHERE k > 1)) "
    "SELECT w AS k, n FROM r UNION ALL SELECT k, -1 FROM s",
    "ranked": "WITH RECURSIVE r(k, w, n) AS (SELECT a, b, 0 FROM t UNION ALL "
    "SELECT d, w, n + 1 FROM (SELECT u.d, w, n, row_number() OVER (ORDER BY w DESC, u.d, k) AS i "
    "FROM r JOIN u ON u.a = r.k WHERE n < 2) WHERE i <= 2) SELECT k, w, n FROM r",
}


def _unrolled(anchor: str, step: str, levels: int) -> str:
    """What a recursion means that has so many levels at most; in the step, `@` is the level before."""
    names = [f"r{level}" for level in range(levels)]
    steps = [f"{name} AS ({step.replace('@', before)})" for before, name in pairwise(names)]
    every = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
    return f"WITH {', '.join([f'r0 AS ({anchor})', *steps])} {every}"


_GROUPED = (
    "SELECT u.d AS k, max(w) AS w, n + 1 AS n FROM @ r JOIN u ON u.a = r.k WHERE n < 2 "
    "GROUP BY u.d, n"
)
_RANKED = (
    "SELECT d AS k, w, n + 1 AS n FROM (SELECT u.d, w, n, row_number() OVER "
    "(ORDER BY w DESC, u.d, k) AS i FROM @ r JOIN u ON u.a = r.k WHERE n < 2) WHERE i <= 2"
)
_HIGHER = "SELECT k + 1 AS k, max(w) AS w FROM @ r WHERE k < 2 GROUP BY k"
_OF_NUMBERS = ("SELECT a AS k, b AS w FROM t", _HIGHER)
_OF_TEXTS = ("SELECT a AS k, c AS w FROM t", _HIGHER)
_GREATEST = (
    "SELECT b AS w, 0 AS n FROM t WHERE a > 0",
    "SELECT max(w) AS w, CAST(count(*) AS INT) AS n FROM @ r WHERE w > 0 AND n < 1 "
    "HAVING max(w) IS NOT NULL",
)
_ABOVE_MEAN = (
    "SELECT k + 1 AS k FROM @ s WHERE k < 3 "
    "AND k >= (SELECT coalesce(avg(k), 1) FROM @ s WHERE k > 1)"
)

LEVELS_JUDGED_BY = {
    "grouped": _unrolled("SELECT a AS k, b AS w, 0 AS n FROM t", _GROUPED, 3),
    "of two types": f"SELECT k, CAST(w AS STRING) AS w FROM ({_unrolled(*_OF_NUMBERS, 4)}) "
    f"UNION ALL SELECT k, w FROM ({_unrolled(*_OF_TEXTS, 4)})",
    "all of a level": f"SELECT w AS k, n FROM ({_unrolled(*_GREATEST, 2)}) "
    f"UNION ALL SELECT k, -1 FROM ({_unrolled('SELECT a AS k FROM u', _ABOVE_MEAN, 5)})",
    "ranked": _unrolled("SELECT a AS k, b AS w, 0 AS n FROM t", _RANKED, 3),
}
"""Another query of the same meaning, where Spark does not compute the one above."""
