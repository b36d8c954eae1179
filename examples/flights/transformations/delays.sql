-- How late each airline leaves, by the hour of the day. A cancelled flight has no delay: count(*)
-- sees it, count(dep_delay) does not.

CREATE MATERIALIZED VIEW delay_by_carrier_hour AS
SELECT
  a.name AS airline,
  d.hour,
  d.flights,
  d.departures,
  d.delay_minutes,
  d.mean_delay,
  d.earliest,
  d.latest
FROM (
  SELECT
    carrier,
    hour,
    count(*) AS flights,
    count(dep_delay) AS departures,
    sum(dep_delay) AS delay_minutes,
    avg(dep_delay) AS mean_delay,
    min(dep_delay) AS earliest,
    max(dep_delay) AS latest
  FROM flights
  GROUP BY carrier, hour
) d
JOIN airlines a ON d.carrier = a.carrier;

-- The same by day, for the picture.
CREATE MATERIALIZED VIEW departures_by_day AS
SELECT
  window(time_hour, '1 day').start AS day,
  carrier,
  count(*) AS flights,
  count(dep_delay) AS departures,
  sum(dep_delay) AS delay_minutes
FROM flights
GROUP BY window(time_hour, '1 day'), carrier;

-- Delay against the weather at the airport in the hour of the scheduled departure. An hour's flights
-- are added up before the join: their totals change as delayed ones leave, and the join follows.
CREATE MATERIALIZED VIEW delay_by_weather AS
SELECT
  origin,
  sight,
  rain,
  sum(departures) AS departures,
  sum(delay_minutes) AS delay_minutes
FROM (
  SELECT
    f.origin,
    f.departures,
    f.delay_minutes,
    CASE WHEN w.visib < 1 THEN 'fog' WHEN w.visib < 5 THEN 'haze' ELSE 'clear' END AS sight,
    w.precip > 0 AS rain
  FROM (
    SELECT origin, time_hour, count(dep_delay) AS departures, sum(dep_delay) AS delay_minutes
    FROM flights
    GROUP BY origin, time_hour
  ) f
  JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
) flown
GROUP BY origin, sight, rain;
