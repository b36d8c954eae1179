-- The number of each bid's channel: of the great ones known, of others in the address.
CREATE MATERIALIZED VIEW q21 AS
SELECT
  auction, bidder, price, channel,
  CASE lower(channel)
    WHEN 'apple' THEN '0'
    WHEN 'google' THEN '1'
    WHEN 'facebook' THEN '2'
    WHEN 'baidu' THEN '3'
    ELSE regexp_extract(url, '[?&]channel_id=([0-9]+)', 1)
  END AS channelId
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
  OR regexp_extract(url, '[?&]channel_id=([0-9]+)', 1) <> '';
