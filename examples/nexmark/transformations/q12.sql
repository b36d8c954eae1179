-- Processing time windows: how many bids of each bidder were processed in each 10 seconds.
CREATE MATERIALIZED VIEW q12 AS
SELECT
  bidder,
  count(*) AS bids,
  window(processedAt, '10 seconds').start AS starts,
  window(processedAt, '10 seconds').end AS ends
FROM bid
GROUP BY bidder, window(processedAt, '10 seconds');
