"""Whole projects for golden plans: Nexmark's queries and questions about flights."""

from __future__ import annotations

_WITH = (
    "USING kafka OPTIONS ('kafka.bootstrap.servers' = '${broker}', "
    "subscribe = '%s', format = 'json')"
)

NEXMARK_SOURCES = f"""
CREATE TABLE person (id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING,
  state STRING, dateTime TIMESTAMP, extra STRING) {_WITH % "nexmark.person"};
CREATE TABLE auction (id BIGINT, itemName STRING, description STRING, initialBid BIGINT,
  reserve BIGINT, dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT,
  extra STRING) {_WITH % "nexmark.auction"};
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
  dateTime TIMESTAMP, extra STRING) {_WITH % "nexmark.bid"};
"""

_TEN_TWO = "window(dateTime, '10 seconds', '2 seconds')"
_HOT = f"SELECT auction, count(*) AS num, {_TEN_TWO} AS w FROM bid GROUP BY auction, {_TEN_TWO}"

NEXMARK = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id
        FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
        WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
    "q4": """
        SELECT q.category, avg(q.final) AS final
        FROM (
          SELECT max(b.price) AS final, a.category
          FROM auction a, bid b
          WHERE a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
          GROUP BY a.id, a.category
        ) q
        GROUP BY q.category""",
    "q5": f"""
        SELECT counted.auction, counted.num
        FROM ({_HOT}) AS counted
        JOIN (
          SELECT max(again.num) AS most, again.w FROM ({_HOT}) AS again GROUP BY again.w
        ) AS top ON counted.w = top.w AND counted.num >= top.most""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
        FROM bid b
        JOIN (
          SELECT max(price) AS highest, window.end AS wend
          FROM bid GROUP BY window(dateTime, '10 seconds')
        ) w ON b.price = w.highest
        WHERE b.dateTime BETWEEN w.wend - INTERVAL '10' SECOND AND w.wend""",
    "q8": """
        SELECT p.id, p.name, p.w.start
        FROM (
          SELECT id, name, window(dateTime, '10 seconds') AS w
          FROM person GROUP BY id, name, window(dateTime, '10 seconds')
        ) p
        JOIN (
          SELECT seller, window(dateTime, '10 seconds') AS w
          FROM auction GROUP BY seller, window(dateTime, '10 seconds')
        ) a ON p.id = a.seller AND p.w = a.w""",
}

FLIGHT_SOURCES = f"""
CREATE TABLE flights (
  carrier STRING NOT NULL COMMENT 'two letters', tailnum STRING, origin STRING, dest STRING,
  time_hour TIMESTAMP, hour INT, dep_delay INT, arr_delay INT, distance INT
) {_WITH % "flights"};
CREATE TABLE airlines (carrier STRING, name STRING) {_WITH % "airlines"};
CREATE TABLE planes (tailnum STRING, manufacturer STRING, seats INT) {_WITH % "planes"};
"""

FLIGHTS = """
-- every flight with its airline and aircraft
CREATE MATERIALIZED VIEW enriched AS
SELECT f.time_hour, a.name AS airline, f.tailnum, p.seats, f.origin, f.dest, f.dep_delay
FROM flights f
JOIN airlines a USING (carrier)
JOIN planes p ON p.tailnum = f.tailnum;

CREATE MATERIALIZED VIEW delay_by_carrier_hour AS
SELECT airline, hour(time_hour) AS hour, count(*) AS flights,
  count(*) FILTER (WHERE dep_delay > 15) AS late, avg(dep_delay) AS mean_delay
FROM enriched
GROUP BY airline, hour(time_hour);

CREATE TEMPORARY VIEW routes AS
SELECT origin, dest, sum(arr_delay) AS minutes, count(DISTINCT carrier) AS carriers
FROM flights
WHERE arr_delay IS NOT NULL
GROUP BY origin, dest;

CREATE MATERIALIZED VIEW worst_routes AS
SELECT r.origin, r.dest, r.minutes
FROM routes r JOIN (SELECT origin, max(minutes) AS most FROM routes GROUP BY origin) w
  ON r.origin = w.origin AND r.minutes = w.most;

CREATE SINK worst FROM worst_routes USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${broker}', topic = 'worst', format = 'changelog');
"""
