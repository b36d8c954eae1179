-- Sets in place of distinct counts, which it does not take.
SELECT
  date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS cheap,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS fair,
  count(*) FILTER (WHERE price >= 1000000) AS dear,
  size(collect_set(bidder)) AS bidders,
  size(collect_set(bidder) FILTER (WHERE price >= 1000000)) AS dearBidders,
  size(collect_set(auction)) AS auctions,
  size(collect_set(auction) FILTER (WHERE price >= 1000000)) AS dearAuctions
FROM bid
GROUP BY date_format(dateTime, 'yyyy-MM-dd')
