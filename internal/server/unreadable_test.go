package server_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// TestListsShowUnreadableRuns: one run whose rows are damaged keeps nobody from the list
// of the others. It is marked there; the run itself is an internal error, which the log
// explains.
func TestListsShowUnreadableRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "name: plain\nsteps: [{id: a, set: {n: 1}}]")
	good, bad, failed := w.run("plain", `{"n":1}`), w.run("plain", `{"n":2}`), w.run("plain", `{"n":3}`)
	named := w.run("plain", `{"n":4}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := sql.Open("sqlite", filepath.Join(w.cfg.Data, "parley.db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	_, damaged := db.ExecContext(ctx, `UPDATE event SET data = CAST('[{"at":1,' AS BLOB) WHERE run = ?`, bad.ID)
	_, other := db.ExecContext(ctx, `UPDATE run SET error = CAST('{' AS BLOB) WHERE id = ?`, failed.ID)
	_, labels := db.ExecContext(ctx, `UPDATE run SET labels = '{' WHERE id = ?`, named.ID)
	if err := errors.Join(damaged, other, labels, db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/v1/runs", "/api/v1/runs?cursor="} {
		status, body := w.call(http.MethodGet, path, "")
		var page struct{ Items []parley.Run }
		if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil || len(page.Items) != 4 {
			t.Fatalf("%s: %d, %v: %.300s", path, status, err, body)
		}
		for _, run := range page.Items {
			switch want := run.ID != good.ID; {
			case run.Unreadable != want:
				t.Errorf("%s: run %s: unreadable %v", path, run.ID, run.Unreadable)
			case run.ID == bad.ID && (run.Input != nil && string(run.Input) != "null" || run.Status != parley.RunCompleted):
				t.Errorf("%s: %+v", path, run)
			case run.ID == good.ID && string(run.Input) != `{"n":1}`:
				t.Errorf("%s: input %s", path, run.Input)
			}
		}
	}
	if status, body := w.call(http.MethodGet, "/api/v1/runs/"+bad.ID, ""); status != http.StatusInternalServerError {
		t.Errorf("the run itself: %d %s", status, body)
	}
}

// TestListsShowUnreadableAgents: so are agents, and how they do.
func TestListsShowUnreadableAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, "name: plain\nsteps: [{id: a, set: {n: 1}}]")
	for _, name := range []string{"bad", "good"} {
		if status, body := w.call(http.MethodPost, "/api/v1/agents", `{"name":"`+name+`","url":"http://127.0.0.1:1/"}`); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	db, err := sql.Open("sqlite", filepath.Join(w.cfg.Data, "parley.db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	_, damaged := db.ExecContext(ctx, `UPDATE agents SET retry_config = '{', protocol_config = CAST('{' AS BLOB) WHERE name = 'bad'`)
	if err := errors.Join(damaged, db.Close()); err != nil {
		t.Fatal(err)
	}
	status, body := w.call(http.MethodGet, "/api/v1/agents?page_size=100", "")
	var page struct {
		Items []struct {
			Name       string
			Unreadable bool
		}
	}
	if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil || len(page.Items) < 2 {
		t.Fatalf("%d, %v: %.300s", status, err, body)
	}
	for _, agent := range page.Items {
		if agent.Unreadable != (agent.Name == "bad") {
			t.Errorf("%+v", agent)
		}
	}
	for path, want := range map[string]int{"/api/v1/agents:health": http.StatusOK, "/api/v1/agents/bad": http.StatusInternalServerError} {
		if status, body := w.call(http.MethodGet, path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
