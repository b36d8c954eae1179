-- Statistics of the day: bids by rank of price, and the bidders and auctions in them.
CREATE MATERIALIZED VIEW q15 AS
SELECT
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS cheap,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS fair,
  count(*) FILTER (WHERE price >= 1000000) AS dear,
  count(DISTINCT bidder) AS bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS dearBidders,
  count(DISTINCT auction) AS auctions,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS dearAuctions
FROM bid
GROUP BY date_format(dateTime, 'yyyy-MM-dd');
