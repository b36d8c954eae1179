-- People who come to the auction house.
CREATE TABLE person (
  id BIGINT,
  name STRING,
  emailAddress STRING,
  creditCard STRING,
  city STRING,
  state STRING,
  dateTime TIMESTAMP,
  extra STRING
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = '${nexmark.prefix}person',
  'format' = 'json'
);
