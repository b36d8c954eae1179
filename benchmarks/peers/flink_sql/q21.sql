SELECT
  auction, bidder, price, channel,
  CASE LOWER(channel)
    WHEN 'apple' THEN '0'
    WHEN 'google' THEN '1'
    WHEN 'facebook' THEN '2'
    WHEN 'baidu' THEN '3'
    ELSE REGEXP_EXTRACT(url, '[?&]channel_id=([0-9]+)', 1)
  END AS channelId
FROM bid
WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
  OR REGEXP_EXTRACT(url, '[?&]channel_id=([0-9]+)', 1) <> ''
