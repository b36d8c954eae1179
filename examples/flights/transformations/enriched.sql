-- One row a flight, with the names that people know: the airline and the aircraft. Flights whose
-- tail number is not in the registry have no row here.

CREATE MATERIALIZED VIEW enriched_flights AS
SELECT
  f.time_hour,
  f.carrier,
  a.name AS airline,
  f.flight,
  f.origin,
  f.dest,
  f.tailnum,
  p.manufacturer,
  p.model,
  p.seats,
  f.dep_delay,
  f.arr_delay
FROM flights f
JOIN airlines a ON f.carrier = a.carrier
JOIN planes p ON f.tailnum = p.tailnum;

-- The types of aircraft that each airline flew.
CREATE MATERIALIZED VIEW fleets AS
SELECT DISTINCT airline, manufacturer, model, seats
FROM enriched_flights;
