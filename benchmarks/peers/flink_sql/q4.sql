SELECT category, AVG(CAST(final AS DOUBLE)) AS final
FROM (
  SELECT a.id, a.category, MAX(b.price) AS final
  FROM auction a
  JOIN bid b ON a.id = b.auction
  WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category
