-- Statistics of the channels: as q15, for each channel and day, and the last minute of a bid.
CREATE MATERIALIZED VIEW q16 AS
SELECT
  channel,
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  max(date_format(dateTime, 'HH:mm')) AS minute,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS cheap,
  count(*) FILTER (WHERE price >= 1000000) AS dear,
  count(DISTINCT bidder) AS bidders,
  count(DISTINCT auction) AS auctions
FROM bid
GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd');
