-- Average price for a category: of the highest bid in time on each auction.
CREATE MATERIALIZED VIEW q4 AS
SELECT category, avg(final) AS final
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a
  JOIN bid b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category
) winners
GROUP BY category;
