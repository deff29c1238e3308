-- Questions that people have asked the Verification Zone (ZN-7): one row from
-- before the question is acknowledged until some time after it was answered. No
-- column holds a token.

-- +goose Up
-- +goose StatementBegin
CREATE TABLE zone_question (
  -- the id of the request execute_task
  id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  -- of Slack; NULL: it has none
  event_id        TEXT COLLATE "C",
  team            TEXT COLLATE "C" NOT NULL,
  channel         TEXT COLLATE "C" NOT NULL,
  ts              TEXT COLLATE "C" NOT NULL,
  -- the thread that the answer goes to
  thread_ts       TEXT COLLATE "C" NOT NULL,
  user_id         TEXT COLLATE "C" NOT NULL,
  -- NULL once it has ended
  text            TEXT COLLATE "C",
  -- JSON, by reference; NULL: none
  attachments     BYTEA,
  correlation_id  TEXT COLLATE "C" NOT NULL,
  -- received, sent, accepted, answered, posting, done or failed
  state           TEXT COLLATE "C" NOT NULL,
  -- what it came to, in one word
  outcome         TEXT COLLATE "C",
  -- where the other zone has it
  affinity        TEXT COLLATE "C",
  task_id         TEXT COLLATE "C",
  -- how often it was sent, asked for and tried to post
  attempts        BIGINT NOT NULL,
  polls           BIGINT NOT NULL,
  tries           BIGINT NOT NULL,
  -- what is posted; NULL: not known yet, or posted
  answer          BYTEA,
  -- how many parts of it were posted
  posted          BIGINT NOT NULL,
  -- nobody looks before, unless it has ended; while somebody has it, the end of
  -- the lease
  due_at          BIGINT NOT NULL,
  -- who has it, or had it last, and how often it was taken
  lease_owner     TEXT COLLATE "C",
  fence           BIGINT NOT NULL,
  created_at      BIGINT NOT NULL,
  -- until when the other zone may answer
  expires_at      BIGINT NOT NULL,
  sent_at         BIGINT,
  answered_at     BIGINT,
  ended_at        BIGINT
);

CREATE UNIQUE INDEX zone_question_event ON zone_question (event_id);
CREATE UNIQUE INDEX zone_question_message ON zone_question (team, channel, ts);
CREATE INDEX zone_question_due ON zone_question (due_at) WHERE ended_at IS NULL;
CREATE INDEX zone_question_ended ON zone_question (ended_at) WHERE ended_at IS NOT NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE zone_question;
-- +goose StatementEnd
