-- Beside Airflow's own: the control store, and the Iceberg catalog.
CREATE DATABASE control;
CREATE DATABASE catalog;
