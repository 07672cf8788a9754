-- Run once, when the volume is new. Each program has a role that sees its own databases and no others.
\set ON_ERROR_STOP on
\getenv mlflow_password MLFLOW_DATABASE_PASSWORD
\getenv optuna_password OPTUNA_PASSWORD
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE ROLE optuna LOGIN PASSWORD :'optuna_password';
CREATE DATABASE mlflow OWNER mlflow;
CREATE DATABASE auth OWNER mlflow;
CREATE DATABASE optuna OWNER optuna;
REVOKE CONNECT ON DATABASE postgres, mlflow, auth, optuna FROM PUBLIC;
