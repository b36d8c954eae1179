-- Pass through: what reading, decoding and publishing cost by themselves.
CREATE MATERIALIZED VIEW q0 AS
SELECT auction, bidder, price, dateTime, extra
FROM bid;
