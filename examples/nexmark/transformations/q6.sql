-- Average selling price of the last ten auctions of each seller, after each auction that ended with a
-- bid: its price is the highest bid of its time.
CREATE MATERIALIZED VIEW q6 AS
SELECT
  auction,
  seller,
  avg(final) OVER (
    PARTITION BY seller ORDER BY ended, auction ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT a.id AS auction, a.seller, a.expires AS ended, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.seller, a.expires
) sold;
