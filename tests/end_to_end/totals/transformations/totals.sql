CREATE TABLE orders (id BIGINT NOT NULL, customer STRING NOT NULL, amount BIGINT NOT NULL)
USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', 'subscribe' = 'orders', 'format' = 'json');

CREATE TABLE customers (customer STRING NOT NULL, country STRING NOT NULL)
USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', 'subscribe' = 'customers', 'format' = 'json');

CREATE MATERIALIZED VIEW customer_totals AS
SELECT o.customer, c.country, count(*) AS orders, sum(o.amount) AS total, max(o.amount) AS largest
FROM orders o JOIN customers c ON o.customer = c.customer
GROUP BY o.customer, c.country;

-- A view on a view that retracts: the largest total can go down only by a correction, but the count
-- of customers a country has moves with every change of a total.
CREATE MATERIALIZED VIEW countries AS
SELECT country, count(*) AS customers, max(total) AS best FROM customer_totals GROUP BY country;

CREATE SINK totals_out FROM customer_totals
USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', 'topic' = 'totals_out', 'format' = 'changelog',
  'steps_topic' = 'totals_steps');
