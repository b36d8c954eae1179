CREATE TABLE t (a INT, b INT, c STRING, ts TIMESTAMP, x DOUBLE, arr ARRAY<INT>, m DECIMAL(8,2), ok BOOLEAN)
USING kafka OPTIONS ('kafka.bootstrap.servers' 'b', subscribe 't');
