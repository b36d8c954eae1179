-- Every departure from New York's three airports in 2013, as `replay.py` sends it. A record must hold
-- every column declared here; a value that is not known is an explicit null.

CREATE TABLE flights (
  flight INT,
  carrier STRING,
  tailnum STRING,
  origin STRING,
  dest STRING,
  time_hour TIMESTAMP,   -- the hour of the scheduled departure
  hour INT,              -- its hour of the day, in New York
  dep_time INT,          -- HHMM as flown; null where the flight was cancelled
  dep_delay INT,         -- whole minutes, negative where early
  arr_delay INT,
  air_time INT,
  distance INT
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = 'flights',
  'format' = 'json'
);

CREATE TABLE airlines (
  carrier STRING,
  name STRING
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = 'airlines',
  'format' = 'json'
);

CREATE TABLE planes (
  tailnum STRING,
  year INT,
  manufacturer STRING,
  model STRING,
  engines INT,
  seats INT
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = 'planes',
  'format' = 'json'
);

CREATE TABLE weather (
  origin STRING,
  time_hour TIMESTAMP,
  temp DOUBLE,
  wind_speed DOUBLE,
  precip DOUBLE,
  visib DOUBLE
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = 'weather',
  'format' = 'json'
);
