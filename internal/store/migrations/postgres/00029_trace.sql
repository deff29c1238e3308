-- The trace context that a task's agent is sent, traceparent and tracestate with a
-- blank between them; NULL for none. A run has it in its first event.

-- +goose Up
-- +goose StatementBegin
ALTER TABLE attempt ADD COLUMN trace TEXT COLLATE "C";
-- That of the runs which an event starts.
ALTER TABLE signal ADD COLUMN trace TEXT COLLATE "C";
-- That of the request which has brought a question.
ALTER TABLE zone_question ADD COLUMN trace TEXT COLLATE "C";
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE zone_question DROP COLUMN trace;
ALTER TABLE signal DROP COLUMN trace;
ALTER TABLE attempt DROP COLUMN trace;
-- +goose StatementEnd
