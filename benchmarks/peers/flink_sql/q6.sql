SELECT
  auction,
  seller,
  AVG(CAST(final AS DOUBLE)) OVER (
    PARTITION BY seller ORDER BY ended, auction ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT a.id AS auction, a.seller, a.expires AS ended, MAX(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.seller, a.expires
)
