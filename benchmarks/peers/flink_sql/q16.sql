SELECT
  channel,
  DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS cheap,
  COUNT(*) FILTER (WHERE price >= 1000000) AS dear,
  COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT auction) AS auctions
FROM bid
GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')
