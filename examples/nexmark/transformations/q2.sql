-- Selection: the bids on every 123rd auction.
CREATE MATERIALIZED VIEW q2 AS
SELECT auction, price
FROM bid
WHERE auction % 123 = 0;
