package server_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/pgtest"
	"github.com/parley-project/parley/internal/server"
)

// TestC7_SchedulesOfServers fires a schedule of a workflow on one server with
// SQLite, and on two that share a PostgreSQL: each firing starts one run, and what
// one process changes the other follows.
func TestC7_SchedulesOfServers(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		w := scheduled(t, server.Config{})
		firesOnce(w, w)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cfg := server.Config{DatabaseURL: parley.NewSecret([]byte(pgtest.Database(t))), SealKeyFile: filepath.Join(t.TempDir(), "seal")}
		firesOnce(scheduled(t, cfg), scheduled(t, cfg))
	})
}

func scheduled(t *testing.T, cfg server.Config) *world {
	t.Helper()
	cfg.Data, cfg.Listen, cfg.DrainGrace = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", 100*time.Millisecond
	return &world{t: t, cfg: cfg, server: startServer(t, cfg)}
}

// get reads one answer of the API.
func (w *world) get(path string, to any) {
	w.t.Helper()
	status, body := w.call(http.MethodGet, "/api/v1/"+path, "")
	if status != http.StatusOK {
		w.t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(body, to); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) send(method, path, body string, want int) []byte {
	w.t.Helper()
	status, answer := w.call(method, "/api/v1/"+path, body)
	if status != want {
		w.t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	return answer
}

type scheduleList struct{ Items []parley.Schedule }

type firingList struct{ Items []parley.ScheduleFiring }

func firesOnce(one, two *world) {
	t := one.t
	one.send(http.MethodPost, "workflows", `{"name":"tick","workflow_id":"tick","triggers":[{"schedule":{"every":"1s"}}],"steps":[{"id":"a","set":"${run.scheduled_at}"}]}`, http.StatusCreated)
	var list scheduleList
	one.get("schedules?workflow=tick", &list)
	if len(list.Items) != 1 || list.Items[0].Version != "1" {
		t.Fatalf("the schedules are %+v", list.Items)
	}
	id := list.Items[0].ID
	var firings firingList
	waitFor(t, "three firings:", func() bool {
		two.get("schedules/"+id+"/firings?page_size=100", &firings)
		return len(firings.Items) >= 4 && firings.Items[3].State == parley.FiringFired
	})
	two.send(http.MethodPost, "schedules/"+id+"/pause", "", http.StatusOK)
	waitFor(t, "the last firing:", func() bool {
		one.get("schedules/"+id+"/firings?page_size=100", &firings)
		return firings.Items[0].State != parley.FiringStarting
	})
	runs := map[string]bool{}
	for _, f := range firings.Items {
		if f.State != parley.FiringFired || runs[f.Run] {
			t.Errorf("%+v", f)
			continue
		}
		runs[f.Run] = true
		run := one.end(f.Run)
		if run.TriggeredBy != "schedule" || string(run.Output) != `"`+f.ScheduledAt.Format(time.RFC3339Nano)+`"` {
			t.Errorf("the run of %s is by %s and gives %s", f.ScheduledAt, run.TriggeredBy, run.Output)
		}
	}
	var all struct{ Total int }
	one.get("runs", &all)
	if all.Total != len(runs) {
		t.Errorf("%d runs of %d firings", all.Total, len(runs))
	}
	// The next version, without the schedule, deployed by the other.
	two.send(http.MethodPost, "workflows", `{"name":"tick","workflow_id":"tick","steps":[{"id":"a","set":1}]}`, http.StatusCreated)
	waitFor(t, "the schedule goes:", func() bool { one.get("schedules", &list); return len(list.Items) == 0 })
	added := one.send(http.MethodPost, "schedules", `{"workflow":"tick","name":"later","cron":"0 2 * * *","zone":"Europe/Berlin"}`, http.StatusCreated)
	var later parley.Schedule
	if err := json.Unmarshal(added, &later); err != nil || later.NextAt == nil {
		t.Fatal(string(added), err)
	}
	to, _ := json.Marshal(map[string]time.Time{"from": later.NextAt.Add(-49 * time.Hour), "to": later.NextAt.Add(-24 * time.Hour)})
	two.send(http.MethodPost, "schedules/later/backfill", string(to), http.StatusAccepted)
	waitFor(t, "the backfill:", func() bool {
		one.get("schedules/later/firings", &firings)
		return len(firings.Items) > 0 && firings.Items[0].State == parley.FiringFired
	})
	two.send(http.MethodDelete, "schedules/later", "", http.StatusOK)
}
