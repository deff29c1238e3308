-- The tables of the existing platform as its newest revision leaves them
-- (formats.md, Database): naive UTC times, jsonb, uuid keys.

CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY);
INSERT INTO alembic_version VALUES ('002_ai_chat_sessions');

CREATE TABLE agents (
  id           UUID         PRIMARY KEY DEFAULT gen_random_uuid(),
  name         VARCHAR(255) NOT NULL UNIQUE,
  url          VARCHAR(512) NOT NULL,
  description  TEXT,
  auth_type    VARCHAR(50),
  auth_config  JSONB,
  timeout_ms   INTEGER      NOT NULL DEFAULT 30000,
  retry_config JSONB,
  status       VARCHAR(50)  NOT NULL DEFAULT 'active',
  created_by   VARCHAR(255),
  updated_by   VARCHAR(255),
  created_at   TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at   TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_agents_name ON agents (name);
CREATE UNIQUE INDEX ix_agents_name ON agents (name);
CREATE INDEX idx_agents_status ON agents (status);

CREATE TABLE workflow_definitions (
  id            UUID         PRIMARY KEY DEFAULT gen_random_uuid(),
  name          VARCHAR(255) NOT NULL,
  description   TEXT,
  version       INTEGER      NOT NULL DEFAULT 1,
  workflow_data JSONB        NOT NULL,
  status        VARCHAR(50)  NOT NULL DEFAULT 'active',
  created_by    VARCHAR(255),
  updated_by    VARCHAR(255),
  created_at    TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at    TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE UNIQUE INDEX idx_workflow_definitions_name_version ON workflow_definitions (name, version);

CREATE TABLE workflow_steps (
  id            UUID         PRIMARY KEY DEFAULT gen_random_uuid(),
  workflow_id   UUID         NOT NULL REFERENCES workflow_definitions (id) ON DELETE CASCADE,
  step_id       VARCHAR(255) NOT NULL,
  agent_id      UUID         REFERENCES agents (id),
  next_step_id  VARCHAR(255),
  input_mapping JSONB,
  step_order    INTEGER,
  created_at    TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at    TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE workflow_runs (
  run_id                 VARCHAR(255) PRIMARY KEY,
  workflow_id            VARCHAR(255) NOT NULL,
  workflow_name          VARCHAR(255) NOT NULL,
  workflow_definition_id VARCHAR(255),
  status                 VARCHAR(50)  NOT NULL,
  input_data             JSONB,
  triggered_by           VARCHAR(255),
  created_at             TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at             TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  completed_at           TIMESTAMP,
  cancelled_at           TIMESTAMP,
  cancelled_by           VARCHAR(255),
  error_message          TEXT
);
CREATE INDEX idx_run_status ON workflow_runs (status);
CREATE INDEX idx_run_workflow_definition_id ON workflow_runs (workflow_definition_id);

CREATE TABLE step_executions (
  id             VARCHAR(255) PRIMARY KEY,
  run_id         VARCHAR(255) NOT NULL REFERENCES workflow_runs (run_id),
  step_id        VARCHAR(255) NOT NULL,
  step_name      VARCHAR(255) NOT NULL,
  agent_name     VARCHAR(255) NOT NULL,
  status         VARCHAR(50)  NOT NULL,
  input_data     JSONB        NOT NULL,
  output_data    JSONB,
  started_at     TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  completed_at   TIMESTAMP,
  error_message  TEXT,
  parent_step_id VARCHAR(255),
  branch_name    VARCHAR(255),
  join_policy    VARCHAR(50)
);
CREATE INDEX idx_step_run_id ON step_executions (run_id);
CREATE INDEX idx_step_status ON step_executions (status);

CREATE TABLE audit_logs (
  id          UUID         PRIMARY KEY DEFAULT gen_random_uuid(),
  entity_type VARCHAR(50)  NOT NULL,
  entity_id   UUID         NOT NULL,
  action      VARCHAR(50)  NOT NULL,
  user_id     VARCHAR(255),
  changes     JSONB,
  created_at  TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at  TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE ai_chat_sessions (
  id               UUID        PRIMARY KEY,
  user_id          VARCHAR(255),
  status           VARCHAR(50) NOT NULL,
  created_at       TIMESTAMP   NOT NULL,
  updated_at       TIMESTAMP   NOT NULL,
  expires_at       TIMESTAMP   NOT NULL,
  current_workflow JSON,
  workflow_history JSON,
  messages         JSON        NOT NULL
);
