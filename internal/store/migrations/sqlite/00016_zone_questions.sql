-- Questions that people have asked the Verification Zone (ZN-7): one row from
-- before the question is acknowledged until some time after it was answered. No
-- column holds a token.

-- +goose Up
CREATE TABLE zone_question (
  -- the id of the request execute_task
  id              TEXT NOT NULL PRIMARY KEY,
  -- of Slack; NULL: it has none
  event_id        TEXT,
  team            TEXT NOT NULL,
  channel         TEXT NOT NULL,
  ts              TEXT NOT NULL,
  -- the thread that the answer goes to
  thread_ts       TEXT NOT NULL,
  user_id         TEXT NOT NULL,
  -- NULL once it has ended
  text            TEXT,
  -- JSON, by reference; NULL: none
  attachments     BLOB,
  correlation_id  TEXT NOT NULL,
  -- received, sent, accepted, answered, posting, done or failed
  state           TEXT NOT NULL,
  -- what it came to, in one word
  outcome         TEXT,
  -- where the other zone has it
  affinity        TEXT,
  task_id         TEXT,
  -- how often it was sent, asked for and tried to post
  attempts        INTEGER NOT NULL,
  polls           INTEGER NOT NULL,
  tries           INTEGER NOT NULL,
  -- what is posted; NULL: not known yet, or posted
  answer          BLOB,
  -- how many parts of it were posted
  posted          INTEGER NOT NULL,
  -- nobody looks before, unless it has ended; while somebody has it, the end of
  -- the lease
  due_at          INTEGER NOT NULL,
  -- who has it, or had it last, and how often it was taken
  lease_owner     TEXT,
  fence           INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  -- until when the other zone may answer
  expires_at      INTEGER NOT NULL,
  sent_at         INTEGER,
  answered_at     INTEGER,
  ended_at        INTEGER
) STRICT;

CREATE UNIQUE INDEX zone_question_event ON zone_question (event_id);
CREATE UNIQUE INDEX zone_question_message ON zone_question (team, channel, ts);
CREATE INDEX zone_question_due ON zone_question (due_at) WHERE ended_at IS NULL;
CREATE INDEX zone_question_ended ON zone_question (ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP TABLE zone_question;
