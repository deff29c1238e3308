package chaos_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/workflow"
)

// awaitRest waits until every run has ended and no attempt is open, without
// any call of the product: it asks the database.
func (c *cluster) awaitRest(runs int, within time.Duration) {
	c.t.Helper()
	conn := c.connect()
	defer conn.Close(context.Background())
	for deadline := time.Now().Add(within); ; pause(c.t, 100*time.Millisecond) {
		var ended, left int
		err := conn.QueryRow(c.t.Context(), `SELECT (SELECT count(*) FROM run WHERE ended_at IS NOT NULL),
			(SELECT count(*) FROM run WHERE ended_at IS NULL) + (SELECT count(*) FROM attempt WHERE state <> 'closed')`).Scan(&ended, &left)
		if err == nil && ended >= runs && left == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("no rest within %s: %d runs of %d have ended, %d runs and attempts are left: %v\n%s", within, ended, runs, left, err, c.unfinished(conn))
			return
		}
	}
}

// unfinished shows some of what is not at rest.
func (c *cluster) unfinished(conn *pgx.Conn) string {
	var text strings.Builder
	for _, query := range []string{
		`SELECT a.id || ' ' || a.state || ' visible in ' || (a.visible_at / 1000000 - extract(epoch FROM now()))::bigint || ' s, orphanings ' || a.orphanings
			|| ', owner ' || coalesce(a.owner, '-') || '/' || coalesce(a.owner_inc, 0) || ', run ' || coalesce(r.status, 'gone')
			FROM attempt a LEFT JOIN run r ON r.id = a.run WHERE a.state <> 'closed' ORDER BY a.id LIMIT 5`,
		`SELECT name || ' inc ' || inc || ' beat ' || beat || ' dead ' || dead FROM worker ORDER BY name`,
		`SELECT id || ' ' || status || ' seq ' || seq FROM run WHERE ended_at IS NULL ORDER BY id LIMIT 5`,
	} {
		rows, err := conn.Query(context.Background(), query)
		if err != nil {
			return err.Error()
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err.Error()
		}
		for _, line := range lines {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}

func (c *cluster) connect() *pgx.Conn {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.primary.URL("postgres"))
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// collect reads what remains. Every process has ended.
func (c *cluster) collect(accepted map[int][]string) evidence {
	c.t.Helper()
	e := evidence{
		accepted: accepted, calls: c.agents.log.snapshot(), called: c.agents.log.times(), runs: map[string]runEnd{}, attempts: map[string]attemptEnd{},
	}
	if c.steers != nil {
		e.deeds = c.steers.deeds
	}
	conn := c.connect()
	defer conn.Close(context.Background())
	c.collectRows(conn, &e)
	c.collectRuns(conn, &e)
	e.counted = counts{}
	for _, p := range c.processes() {
		p.mu.Lock()
		e.counted.add(p.counted)
		p.mu.Unlock()
	}
	if c.kafka != nil {
		e.results = c.results()
	}
	return e
}

func (c *cluster) collectRows(conn *pgx.Conn, e *evidence) {
	c.t.Helper()
	rows, err := conn.Query(c.t.Context(), `SELECT id, agent, state, coalesce(outcome, ''), coalesce(output, ''), orphanings FROM attempt`)
	if err == nil {
		var id string
		var a attemptEnd
		var output []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &a.agent, &a.state, &a.outcome, &output, &a.orphanings}, func() error {
			a.output = string(output)
			e.attempts[id] = a
			return nil
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if rows, err = conn.Query(c.t.Context(), `SELECT attempt, outcome, coalesce(output, '') FROM late`); err == nil {
		var l lateAnswer
		var output []byte
		_, err = pgx.ForEachRow(rows, []any{&l.attempt, &l.outcome, &output}, func() error {
			l.output = string(output)
			e.late = append(e.late, l)
			return nil
		})
	}
	if err == nil {
		e.letters, err = c.letters(conn)
	}
	if err == nil {
		e.left, err = c.left(conn)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// letters are the dead letters of tasks, and those of records if nobody has written
// any that cannot be handled.
func (c *cluster) letters(conn *pgx.Conn) ([]letter, error) {
	rows, err := conn.Query(c.t.Context(), `SELECT kind, coalesce(run, '') FROM dead_letter WHERE kind = $1 OR NOT $2`, parley.DeadLetterTask, c.poisoned)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l letter, err error) {
		err = row.Scan(&l.kind, &l.run)
		return l, err
	})
}

// left are waits for events and places in lanes, and runs of steps that have not ended.
func (c *cluster) left(conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(c.t.Context(), `SELECT 'wait of ' || run || '.' || step FROM waiter UNION ALL SELECT 'turn of ' || run FROM turn
		UNION ALL SELECT 'lane of ' || workflow FROM lane UNION ALL SELECT 'child of ' || task || ' that is ' || state FROM child WHERE state NOT IN ('ended', 'void') ORDER BY 1`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// collectRuns reads the histories and replays each.
func (c *cluster) collectRuns(conn *pgx.Conn, e *evidence) {
	c.t.Helper()
	rows, err := conn.Query(c.t.Context(), `SELECT id, coalesce(idempotency_key, '') FROM run`)
	if err != nil {
		c.t.Fatal(err)
	}
	keys := map[string]string{}
	var id, key string
	if _, err := pgx.ForEachRow(rows, []any{&id, &key}, func() error { keys[id] = key; return nil }); err != nil {
		c.t.Fatal(err)
	}
	db, err := store.Open(c.t.Context(), c.primary.URL("postgres"), store.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	for id, key := range keys {
		h, err := db.History(c.t.Context(), id)
		if err != nil {
			c.t.Fatal(err)
		}
		r := runEnd{
			key: key, flow: h.Run.Workflow, status: h.Run.Status, ended: h.Run.EndedAt, retriedFrom: h.Run.RetriedFrom,
			parent: h.Run.ParentRun, of: h.Run.ParentStep, seq: h.Run.Seq, events: h.Events,
			replayed: replayed(c.t, h), output: output(h.Events),
		}
		var why parley.Error
		if json.Unmarshal(h.Run.Error, &why) == nil {
			var details struct{ Limit string }
			_ = json.Unmarshal(why.Details, &details) // others have other details
			if r.code, r.why, r.limit = why.Code, why.Message, details.Limit; why.Cause != nil {
				r.cause = why.Cause.Code
			}
		}
		e.runs[id] = r
	}
}

// output is what the last event of a run gives.
func output(events []parley.Event) string {
	var last struct {
		Output json.RawMessage `json:"output"`
	}
	if len(events) > 0 {
		_ = json.Unmarshal(events[len(events)-1].Data, &last) // what is none is judged
	}
	return string(last.Output)
}

func replayed(t *testing.T, h store.History) parley.RunStatus {
	t.Helper()
	def, problems := workflow.Parse(workflow.ParseOptions{}, []byte(flows()[h.Run.Workflow]))
	if def == nil {
		t.Fatal(problems)
	}
	state := workflow.NewState(h.Run.ID, def, workflow.DefaultRunLimits())
	for _, e := range h.Events {
		if err := state.Replay(e); err != nil {
			t.Errorf("run %s, event %d: %v", h.Run.ID, e.Seq, err)
			return ""
		}
	}
	return state.Status()
}

// results counts the records on the topic of results by their task.
func (c *cluster) results() map[string]int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	counts := map[string]int{}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.kafka.Brokers()...), kgo.ConsumeTopics("results.topic"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, "results.topic")
	if err != nil {
		c.t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetched := client.PollFetches(ctx)
		if ctx.Err() != nil {
			c.t.Fatalf("the topic of results cannot be read: %v", fetched.Err())
		}
		fetched.EachRecord(func(r *kgo.Record) {
			var result struct {
				TaskID string `json:"task_id"`
			}
			if err := json.Unmarshal(r.Value, &result); err != nil || result.TaskID == "" {
				c.t.Errorf("a record on the topic of results cannot be read: %.200q", r.Value)
			}
			counts[result.TaskID]++
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return counts
}
