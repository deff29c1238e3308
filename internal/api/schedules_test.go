package api

import (
	"strings"
	"testing"
)

// TestScheduleRoutes: a schedule is added, listed, shown, paused, resumed and
// removed; who did it is the caller.
func TestScheduleRoutes(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "", "", 200, `"items":[],"total":0`},
		{"POST", "", `{"workflow":"a","name":"nightly","cron":"0 2 * * *","zone":"Europe/Berlin","overlap":"queue","catch_up":"1h","jitter":"30s","input":{"a":1}}`, 201, `"cron":"0 2 * * *","zone":"Europe/Berlin","overlap":"queue","catch_up":"1h","jitter":"30s","input":{"a":1}`},
		{"POST", "", `{"workflow":"a","name":"nightly","every":"1h"}`, 409, `conflict`},
		{"POST", "", `{"workflow":"defined","every":"1h"}`, 201, `"created_by":"` + configured + `"`},
		{"POST", "", `{"every":"1h"}`, 422, `workflow`},
		{"POST", "", `{"workflow":"a"}`, 422, `a schedule needs cron`},
		{"POST", "", `{"workflow":"a","every":5}`, 422, `every`},
		{"POST", "", `{"workflow":"a","every":"1h","timezone":"UTC"}`, 422, `timezone`},
		{"GET", "?workflow=a", "", 200, `"total":1`},
		{"GET", "?status=paused", "", 200, `"total":0`},
		{"GET", "?page=x", "", 422, `page`},
		{"GET", "?status=asleep", "", 422, `must be active or paused, not \"asleep\"`},
		{"GET", "/nightly", "", 200, `"id":"sch-1"`},
		{"GET", "/none", "", 404, `not_found`},
		{"GET", "/sch-1/firings", "", 200, `"run":"run-7"`},
		{"GET", "/none/firings", "", 404, `not_found`},
		{"POST", "/sch-1/pause", "", 200, `"status":"paused"`},
		{"POST", "/none/pause", "", 404, `not_found`},
		{"POST", "/sch-1/resume", "", 200, `"status":"active"`},
		{"POST", "/sch-1/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T02:00:00Z"}`, 202, `{"firings":3,"before":1}`},
		{"POST", "/sch-1/backfill", `{"from":"2026-01-01T00:00:00Z"}`, 422, `to`},
		{"POST", "/sch-1/backfill", `{"from":"yesterday","to":"2026-01-01"}`, 422, `from`},
		{"POST", "/sch-1/backfill", `{"from":"2026-01-02","to":"2026-01-01"}`, 422, `both are included`},
		{"DELETE", "/sch-2", "", 409, `stands in version 3`},
		{"DELETE", "/nightly", "", 200, `Schedule 'nightly' removed`},
		{"DELETE", "/nightly", "", 404, `not_found`},
	} {
		rec := call(h, c.method, "/api/v1/schedules"+c.path, c.body)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, rec.Code, rec.Body, c.status, c.says)
		}
	}
}
