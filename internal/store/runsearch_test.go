package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley"
)

// TestSearchRuns: each filter, alone and together, and the order.
func TestSearchRuns(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for i := range 30 {
			at := epoch.Add(time.Duration(i) * time.Minute)
			r := Run{
				ID: fmt.Sprintf("run-%02d", i), Workflow: []string{"greet", "other"}[i%2], Name: []string{"Greet People of Ägypten", "Other"}[i%2], Version: fmt.Sprint(1 + i%3),
				DefinitionID: "def-1", Seq: 1, Status: parley.RunRunning, Hidden: i == 29, Paused: i == 11, CreatedAt: at, UpdatedAt: at,
				RetriedFrom: map[int]string{17: "run-10"}[i],
				Labels:      map[string]string{"team": []string{"blue", "red", "nul\x00"}[i%3], "n": fmt.Sprint(i)},
			}
			check(t, begun(db, r))
			if i%5 != 0 {
				continue
			}
			r.Seq, r.UpdatedAt, r.EndedAt = 2, at.Add(time.Hour), at.Add(time.Hour)
			if r.Status = parley.RunCompleted; i%10 == 0 {
				r.Status = parley.RunFailed
				r.Error, _ = json.Marshal(parley.Errorf(parley.CodeAgentError, "The ÄGENT said 100%% %s", strings.Repeat("x", i*300)))
			}
			check(t, db.Decide(t.Context(), Decision{Run: r, Seen: 1, Events: []parley.Event{{Seq: 2, At: at, Type: parley.EventRunCompleted, Run: r.ID}}}))
		}
		status := func(list ...parley.RunStatus) []parley.RunStatus { return list }
		for name, c := range map[string]struct {
			q     parley.RunQuery
			n     int
			first string
		}{
			"all":             {parley.RunQuery{}, 29, "run-28"},
			"hidden":          {parley.RunQuery{Hidden: true}, 30, "run-29"},
			"ascending":       {parley.RunQuery{Ascending: true}, 29, "run-00"},
			"failed":          {parley.RunQuery{Status: status(parley.RunFailed)}, 3, "run-20"},
			"failed, running": {parley.RunQuery{Status: status(parley.RunFailed, parley.RunRunning, parley.RunFailed)}, 26, "run-28"},
			"completed":       {parley.RunQuery{Status: status(parley.RunCompleted, parley.RunFailed)}, 6, "run-25"},
			"no such status":  {parley.RunQuery{Status: status("x")}, 0, ""},
			"paused":          {parley.RunQuery{Paused: true}, 1, "run-11"},
			"workflow":        {parley.RunQuery{Workflow: "greet"}, 15, "run-28"},
			"no workflow":     {parley.RunQuery{Workflow: "nothing"}, 0, ""},
			"version":         {parley.RunQuery{Workflow: "greet", Version: "2"}, 5, "run-28"},
			"label":           {parley.RunQuery{Labels: map[string]string{"team": "red"}}, 10, "run-28"},
			"nul":             {parley.RunQuery{Labels: map[string]string{"team": "nul\x00"}}, 9, "run-26"},
			"labels":          {parley.RunQuery{Labels: map[string]string{"team": "red", "n": "4"}}, 1, "run-04"},
			"label, failed":   {parley.RunQuery{Labels: map[string]string{"team": "red"}, Status: status(parley.RunFailed)}, 1, "run-10"},
			"created":         {parley.RunQuery{CreatedAfter: epoch.Add(3 * time.Minute), CreatedBefore: epoch.Add(6 * time.Minute)}, 2, "run-05"},
			"ended":           {parley.RunQuery{EndedAfter: epoch.Add(time.Hour), EndedBefore: epoch.Add(71 * time.Minute)}, 2, "run-10"},
			"text of error":   {parley.RunQuery{Text: "ägent SAID 100%"}, 3, "run-20"},
			"text of id":      {parley.RunQuery{Text: "N-07"}, 1, "run-07"},
			"text of name":    {parley.RunQuery{Text: "greet p"}, 15, "run-28"},
			"letters of name": {parley.RunQuery{Text: "Ägypt"}, 15, "run-28"},
			"small of name":   {parley.RunQuery{Text: "OF äg"}, 15, "run-28"},
			"not retried":     {parley.RunQuery{NotRetried: true, Status: status(parley.RunFailed)}, 2, "run-20"},
			"no pattern":      {parley.RunQuery{Text: "run_0%"}, 0, ""},
			"text, status":    {parley.RunQuery{Text: "agent_error", Status: status(parley.RunFailed, parley.RunCancelled)}, 3, "run-20"},
		} {
			// The pages of a search hold, together, what a list holds.
			var all []string
			for pages := 0; ; pages++ {
				runs, next, err := db.SearchRuns(t.Context(), c.q, 4)
				check(t, err)
				for _, r := range runs {
					all = append(all, r.ID)
				}
				if next == nil || pages > 30 {
					break
				}
				c.q.After = next
			}
			c.q.After = nil
			_, total, err := db.Runs(t.Context(), c.q)
			check(t, err)
			first := ""
			if len(all) > 0 {
				first = all[0]
			}
			if len(all) != c.n || total != c.n || first != c.first || len(slices.Compact(slices.Sorted(slices.Values(all)))) != c.n {
				t.Errorf("%s: %d of %d runs, first %q, want %d and %q: %q", name, len(all), total, first, c.n, c.first, all)
			}
		}
	})
}

// begun inserts a run as it begins.
func begun(db *DB, r Run) error {
	_, err := db.StartRun(context.Background(), Start{Run: r, Events: []parley.Event{{Seq: 1, At: r.CreatedAt, Type: parley.EventRunStarted, Run: r.ID}}})
	return err
}

// TestSearchRunsIsStable: runs that begin meanwhile change no page behind the
// first, also those of the very same time.
func TestSearchRunsIsStable(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		add := func(id string) {
			check(t, begun(db, Run{ID: id, Workflow: "w", Name: "w", Version: "1", Seq: 1, Status: parley.RunRunning, CreatedAt: epoch, UpdatedAt: epoch}))
		}
		for i := range 6 {
			add(fmt.Sprintf("run-%d", i))
		}
		var got []string
		q := parley.RunQuery{}
		for i := 0; ; i++ {
			runs, next, err := db.SearchRuns(t.Context(), q, 2)
			check(t, err)
			for _, r := range runs {
				got = append(got, r.ID)
			}
			if next == nil {
				break
			}
			add(fmt.Sprintf("run-9%d", i))
			q.After = next
		}
		diff(t, got, []string{"run-5", "run-4", "run-3", "run-2", "run-1", "run-0"})
	})
}

// TestSearchPlans: of 100,000 runs no search reads many more than it gives.
func TestSearchPlans(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		fill(t, db)
		status := func(list ...parley.RunStatus) []parley.RunStatus { return list }
		mark := &parley.RunMark{ID: "run-50000", At: time.UnixMicro(50_000)}
		for name, q := range map[string]parley.RunQuery{
			"all":              {},
			"running":          {Status: status(parley.RunRunning)},
			"failed":           {Status: status(parley.RunFailed)},
			"failed, running":  {Status: status(parley.RunFailed, parley.RunCancelled, parley.RunRunning, parley.RunPending)},
			"completed":        {Status: status(parley.RunCompleted)},
			"workflow":         {Workflow: "w-7"},
			"workflow, failed": {Workflow: "w-7", Status: status(parley.RunFailed)},
			"label":            {Labels: map[string]string{"k": "7"}},
			"labels":           {Labels: map[string]string{"k": "7", "j": "1"}},
			"created":          {CreatedAfter: time.UnixMicro(20_000), CreatedBefore: time.UnixMicro(20_500)},
			"not retried":      {Status: status(parley.RunFailed), NotRetried: true},
			"text":             {Text: "said"},
			"ended":            {EndedBefore: time.UnixMicro(20_000)},
			"paused":           {Paused: true},
		} {
			for _, after := range []*parley.RunMark{nil, mark} {
				q.After = after
				f, err := db.searchOf(t.Context(), &q, 20)
				check(t, err)
				query, args := f.query, f.args
				t.Run(fmt.Sprint(name, " ", after != nil), func(t *testing.T) {
					if db.dialect.guesses {
						postgresReads(t, db, query, args)
					} else {
						sqliteReads(t, db, query, args)
					}
				})
			}
		}
		// What is looked at for a text has an end, and the search goes on behind it.
		runs, next, err := db.SearchRuns(t.Context(), parley.RunQuery{Text: "run-10.", Hidden: true}, 20)
		check(t, err)
		if len(runs) != 0 || next == nil || next.ID != fmt.Sprintf("run-%d", 100_000-runLook+1) {
			t.Errorf("%d runs, the next page begins after %v", len(runs), next)
		}
		searchWhileRunsGo(t, db)
	})
}

// searchWhileRunsGo: the next page begins where this one has ended to look, also while
// runs come and go among those that are looked at. None is passed by or given twice.
func searchWhileRunsGo(t *testing.T, db *DB) {
	t.Helper()
	edge := []string{fmt.Sprintf("run-%d", 100_000-runLook+1), fmt.Sprintf("run-%d", 100_000-runLook)}
	exec := func(text string, args ...any) error {
		return db.submit(t.Context(), synced, func(s *session) error { _, err := s.exec(text, args...); return err })
	}
	check(t, exec(`UPDATE run SET error_text = 'at the edge' WHERE id IN (?, ?)`, edge[0], edge[1]))
	searched, going := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(going)
		for {
			select {
			case <-searched:
				return
			default:
				if err := exec(`UPDATE run SET hidden = 1 - hidden WHERE id = 'run-100000'`); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	defer func() { close(searched); <-going }()
	for range 20 {
		runs, next, err := db.SearchRuns(t.Context(), parley.RunQuery{Text: "at the edge"}, 20)
		check(t, err)
		if len(runs) == 0 || next == nil || runs[len(runs)-1].ID != next.ID {
			t.Fatalf("found %d runs at the edge %q, the next page begins after %v", len(runs), edge, next)
		}
	}
}

// fill makes 100,000 runs: each hundredth has failed, each thousandth runs.
func fill(t *testing.T, db *DB) {
	t.Helper()
	const numbers = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) `
	check(t, db.submit(t.Context(), synced, func(s *session) error {
		for _, text := range []string{
			numbers + `INSERT INTO run (id, workflow, name, version, definition_id, seq, status, paused, cancelling, hidden, created_at, updated_at, ended_at, error_text)
 SELECT 'run-' || CAST(i AS TEXT), 'w-' || CAST(i % 100 AS TEXT), 'W', '1', 'd', 1,
 CASE WHEN i % 1000 = 0 THEN 'RUNNING' WHEN i % 100 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, 0, 0, 0, i, i,
 CASE WHEN i % 1000 = 0 THEN NULL ELSE i END, CASE WHEN i % 100 = 0 THEN 'the agent said no' END FROM n`,
			numbers + `INSERT INTO run_label (run_id, label, value, begun_at) SELECT 'run-' || CAST(i AS TEXT), 'k', CAST(i % 1000 AS TEXT), i FROM n`,
			numbers + `INSERT INTO run_label (run_id, label, value, begun_at) SELECT 'run-' || CAST(i AS TEXT), 'j', CAST(i % 2 AS TEXT), i FROM n`,
			`ANALYZE`,
		} {
			if _, err := s.exec(text); err != nil {
				return err
			}
		}
		return nil
	}))
}

func sqliteReads(t *testing.T, db *DB, query string, args []any) {
	check(t, db.read(t.Context(), `EXPLAIN QUERY PLAN `+query, func(r *record) error {
		r.next = 1
		parent := r.int()
		r.next = 3
		step := r.str()
		t.Log(step)
		if strings.HasPrefix(step, "SCAN run") && !strings.Contains(step, "USING INDEX run_created") && !strings.Contains(step, "USING INDEX run_open") || strings.Contains(step, "TEMP B-TREE FOR LAST") {
			t.Errorf("too much is read: %s", step)
		}
		if parent == 0 && strings.Contains(step, "TEMP B-TREE") && !strings.Contains(query, "UNION ALL") && !strings.Contains(query, "AS seen") {
			t.Errorf("all is sorted: %s", step)
		}
		return nil
	}, args...))
}

// planNode is a node of what PostgreSQL has done.
type planNode struct {
	Type    string     `json:"Node Type"`
	Rows    float64    `json:"Actual Rows"`
	Removed float64    `json:"Rows Removed by Filter"`
	Loops   float64    `json:"Actual Loops"`
	Plans   []planNode `json:"Plans"`
}

func postgresReads(t *testing.T, db *DB, query string, args []any) {
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, db.path)
	check(t, err)
	defer conn.Close(ctx)
	var text []byte
	check(t, conn.QueryRow(ctx, `EXPLAIN (ANALYZE, FORMAT JSON) `+numberParameters(query), append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&text))
	var plans []struct{ Plan planNode }
	check(t, json.Unmarshal(text, &plans))
	read := 0.0
	var walk func(n planNode)
	walk = func(n planNode) {
		if strings.Contains(n.Type, "Scan") && !strings.HasPrefix(n.Type, "Subquery") {
			read += (n.Rows + n.Removed) * n.Loops
			if n.Type == "Seq Scan" && n.Rows+n.Removed > 1000 {
				t.Errorf("a whole table is read:\n%s", text)
			}
		}
		for _, p := range n.Plans {
			walk(p)
		}
	}
	walk(plans[0].Plan)
	if read > 3000 && !strings.Contains(query, "AS seen") || read > 2*runLook {
		t.Errorf("%.0f rows are read:\n%s", read, text)
	}
}

// TestSearchesAreNotKept: whoever searches chooses the form of the query. Its text is
// not kept prepared, as those are of which there is a number of forms.
func TestSearchesAreNotKept(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		begin(t, db, "run-1")
		kept := func() (n int) {
			db.reads.Range(func(_, _ any) bool { n++; return true })
			return n
		}
		labels := map[string]string{}
		_, _, err := db.SearchRuns(t.Context(), parley.RunQuery{Workflow: "greet"}, 10)
		check(t, err)
		before := kept()
		for n := range 10 {
			labels[fmt.Sprint("label ", n)] = "v"
			runs, _, err := db.SearchRuns(t.Context(), parley.RunQuery{Labels: labels, Text: "x", Status: slices.Repeat([]parley.RunStatus{parley.RunRunning}, n)}, 10)
			check(t, err)
			diff(t, len(runs), 0)
		}
		if n := kept() - before; n > 0 {
			t.Errorf("%d statements are kept", n)
		}
	})
}
