CREATE TABLE sales (id BIGINT NOT NULL, item STRING NOT NULL, pieces BIGINT NOT NULL)
USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', 'subscribe' = 'sales', 'format' = 'json');

-- Somebody else merges into this table: prices change, items come, go, and move between categories.
CREATE TABLE items (item STRING, category STRING, price BIGINT)
USING iceberg OPTIONS ('table' = 'lake.shop.items');

CREATE MATERIALIZED VIEW item_sales AS
SELECT s.item, i.category, count(*) AS sales, sum(s.pieces * i.price) AS revenue
FROM sales s JOIN items i ON s.item = i.item
GROUP BY s.item, i.category;

CREATE MATERIALIZED VIEW categories AS
SELECT category, count(*) AS items, max(revenue) AS best FROM item_sales GROUP BY category;

CREATE SINK stock_out FROM item_sales
USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', 'topic' = 'stock_out', 'format' = 'upsert',
  'key' = 'item', 'shards' = '2', 'steps_topic' = 'stock_steps');
