SELECT
  auction,
  DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS cheap,
  COUNT(*) FILTER (WHERE price >= 1000000) AS dear,
  MIN(price) AS lowest,
  MAX(price) AS highest,
  AVG(CAST(price AS DOUBLE)) AS average,
  SUM(price) AS total
FROM bid
GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')
