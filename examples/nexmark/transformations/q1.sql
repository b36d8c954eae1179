-- Currency conversion: dollars to euros.
CREATE MATERIALIZED VIEW q1 AS
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra
FROM bid;
