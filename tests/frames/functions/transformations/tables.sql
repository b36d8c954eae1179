CREATE TABLE t (a INT, b INT, c STRING, ts TIMESTAMP, x DOUBLE, arr ARRAY<INT>, m DECIMAL(8,2), ok BOOLEAN)
USING kafka OPTIONS ('kafka.bootstrap.servers' 'b', subscribe 't');
CREATE TABLE u (a INT, d INT, e STRING)
USING kafka OPTIONS ('kafka.bootstrap.servers' 'b', subscribe 'u');
CREATE TABLE v (d INT, f INT)
USING kafka OPTIONS ('kafka.bootstrap.servers' 'b', subscribe 'v');
