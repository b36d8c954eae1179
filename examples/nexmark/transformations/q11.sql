-- User sessions: how many bids each bidder made in each session, which ends after 10 seconds without one.
CREATE MATERIALIZED VIEW q11 AS
SELECT
  bidder,
  count(*) AS bids,
  session_window(dateTime, '10 seconds').start AS starts,
  session_window(dateTime, '10 seconds').end AS ends
FROM bid
GROUP BY bidder, session_window(dateTime, '10 seconds');
