-- Each flight is two movements: one at its origin, one at its destination.

CREATE TEMPORARY VIEW movements AS
SELECT origin AS airport, 'out' AS direction, dep_delay AS delay, distance FROM flights
UNION ALL
SELECT dest AS airport, 'in' AS direction, arr_delay AS delay, distance FROM flights;

CREATE MATERIALIZED VIEW traffic_by_airport AS
SELECT
  airport,
  direction,
  count(*) AS movements,
  count(delay) AS flown,
  sum(delay) AS delay_minutes,
  min(distance) AS nearest,
  max(distance) AS farthest
FROM movements
GROUP BY airport, direction;
