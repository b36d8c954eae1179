-- Bids on the auctions.
CREATE TABLE bid (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel STRING,
  url STRING,
  dateTime TIMESTAMP,
  extra STRING,
  processedAt TIMESTAMP
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = '${nexmark.prefix}bid',
  'format' = 'json',
  'metadata' = 'step_time AS processedAt'
);
