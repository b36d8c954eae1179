-- Items that people put up for auction.
CREATE TABLE auction (
  id BIGINT,
  itemName STRING,
  description STRING,
  initialBid BIGINT,
  reserve BIGINT,
  dateTime TIMESTAMP,
  expires TIMESTAMP,
  seller BIGINT,
  category BIGINT,
  extra STRING
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = '${nexmark.prefix}auction',
  'format' = 'json'
);
