package execution

import (
	"net/http"
	"strconv"
)

// servePing is GET /ping: HealthyBusy while tasks run, so that the platform does
// not take the machine away. The time changes with the status only: one that moves
// with each ping keeps a machine for hours, and without it a busy one is killed
// (zones.md §0, 8).
func (z *Zone) servePing(w http.ResponseWriter, _ *http.Request) {
	busy := z.serving.Load() > 0 || z.cfg.Work.Running() > 0
	z.ping.Lock()
	if busy != z.ping.busy {
		z.ping.busy, z.ping.since = busy, z.cfg.Now()
	}
	since := z.ping.since
	z.ping.Unlock()
	status := "Healthy"
	if busy {
		status = "HealthyBusy"
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(`{"status":"` + status + `","time_of_last_update":` + strconv.FormatInt(since.Unix(), 10) + "}")) // who pings will ping again
}
