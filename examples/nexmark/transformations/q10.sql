-- Log to files: every bid, with the day and the minute by which it would be filed.
CREATE MATERIALIZED VIEW q10 AS
SELECT
  auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  date_format(dateTime, 'HH:mm') AS minute
FROM bid;
