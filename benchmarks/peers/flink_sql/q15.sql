SELECT
  DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS cheap,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS fair,
  COUNT(*) FILTER (WHERE price >= 1000000) AS dear,
  COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS dearBidders,
  COUNT(DISTINCT auction) AS auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS dearAuctions
FROM bid
GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')
