package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// keyed gives a handler with the keys admin and viewer, as they are made, and what
// holds them.
func keyed(t *testing.T) (h http.Handler, w *world, keys *fakeKeys) {
	t.Helper()
	s, w := setup(nil)
	h = s.handler()
	for _, body := range []string{`{"name":"ci"}`, `{"name":"dash","role":"viewer","expires_in":"1h"}`} {
		if rec := call(h, "POST", keysPath, body); rec.Code != http.StatusCreated {
			t.Fatal(rec.Body)
		}
	}
	return h, w, s.cfg.Keys.(*fakeKeys)
}

func bearer(name string) []string { return []string{"Authorization", "Bearer secret-of-" + name} }

// TestKeyRoutes: keys are made, listed without their secrets, and revoked.
func TestKeyRoutes(t *testing.T) {
	h, _, _ := keyed(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "", `{"name":"ann","role":"admin"}`, 201, `"name":"ann","role":"admin","state":"active"`},
		{"POST", "", `{"name":"bob","role":"viewer","expires_in":"1h"}`, 201, `"key":"secret-of-bob"`},
		{"POST", "", `{"name":"ann"}`, 409, `conflict`},
		{"POST", "", `{}`, 422, `"path":"name"`},
		{"POST", "", `{"name":"no good"}`, 422, `letters, digits`},
		{"POST", "", `{"name":"system"}`, 422, `system`},
		{"POST", "", `{"name":"x","role":"root"}`, 422, `must be one of: admin, viewer`},
		{"POST", "", `{"name":"x","expires_in":"soon"}`, 422, `soon`},
		{"POST", "", `{"name":"x","secret":"mine"}`, 422, `"path":"secret"`},
		{"GET", "", "", 200, `"total":4`},
		{"GET", "?page=2&page_size=3", "", 200, `"items":[{"name":"dash","role":"viewer","state":"active"`},
		{"DELETE", "/ann", "", 200, `"state":"revoked"`},
		{"DELETE", "/ann", "", 200, `"state":"revoked"`},
		{"DELETE", "/none", "", 404, `there is no key`},
	} {
		rec := call(h, c.method, keysPath+c.path, c.body)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, rec.Code, rec.Body, c.status, c.says)
		}
		if c.method != "POST" && strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%s %s tells a secret: %s", c.method, c.path, rec.Body)
		}
	}
}

// TestKeyRoles: an admin does everything, in its own name; a viewer looks.
func TestKeyRoles(t *testing.T) {
	h, _, _ := keyed(t)
	call(h, "POST", "/api/v1/workflows", onePlan)
	for _, c := range []struct {
		key, method, path, body string
		status                  int
	}{
		{"ci", "GET", "/api/v1/runs", "", 200},
		{"ci", "PUT", "/api/v1/workflows/a/aliases/beta", `{"version":"1"}`, 201},
		{"ci", "GET", keysPath, "", 200},
		{"dash", "GET", "/api/v1/runs", "", 200},
		{"dash", "HEAD", "/api/v1/runs", "", 200},
		{"dash", "PUT", "/api/v1/workflows/a/aliases/beta", `{"version":"1"}`, 403},
		{"dash", "POST", "/api/v1/workflows/a/execute", `{"input_data":{}}`, 403},
		{"dash", "DELETE", "/api/v1/workflows/a", "", 403},
		{"dash", "GET", keysPath, "", 403},
		{"dash", "POST", keysPath, `{"name":"mine"}`, 403},
		{"dash", "DELETE", keysPath + "/ci", "", 403},
		{"nobody", "GET", "/api/v1/runs", "", 401},
	} {
		rec := call(h, c.method, c.path, c.body, bearer(c.key)...)
		if rec.Code != c.status {
			t.Errorf("%s: %s %s: %d %s, want %d", c.key, c.method, c.path, rec.Code, rec.Body, c.status)
		}
		if c.status == 403 && !strings.Contains(rec.Body.String(), `the key \"dash\" has the role viewer`) {
			t.Errorf("%s %s: %s", c.method, c.path, rec.Body)
		}
	}
	if rec := call(h, "GET", "/api/v1/workflows/a/aliases", ""); !strings.Contains(rec.Body.String(), `"created_by":"ci"`) {
		t.Errorf("who set the alias: %s", rec.Body)
	}
	call(h, "POST", "/api/v1/agents", `{"name":"b","url":"http://b.example"}`)
	call(h, "POST", "/api/v1/agents/b/check", "", bearer("ci")...)
	if rec := call(h, "GET", "/api/v1/agents/b", ""); !strings.Contains(rec.Body.String(), `"updated_by":"ci"`) {
		t.Errorf("who looked at the agent anew: %s", rec.Body)
	}
}

// auditsAsked is an audit record that notes what it is asked for.
type auditsAsked struct{ asked []store.AuditQuery }

func (a *auditsAsked) Audits(_ context.Context, q store.AuditQuery) ([]store.Audit, int, error) {
	a.asked = append(a.asked, q)
	return nil, 0, nil
}

// TestViewersAudit: the audit record tells a viewer nothing of keys, however it is
// asked.
func TestViewersAudit(t *testing.T) {
	var audits auditsAsked
	s, _ := setup(func(c *Config) { c.Audits = &audits })
	h := s.handler()
	call(h, "POST", keysPath, `{"name":"ci"}`)
	call(h, "POST", keysPath, `{"name":"dash","role":"viewer"}`)
	for _, c := range []struct{ key, query, without string }{
		{"ci", "", ""},
		{"ci", "?entity_type=key", ""},
		{"dash", "", "key"},
		{"dash", "?entity_type=key", "key"},
		{"dash", "?entity_id=ci&action=create", "key"},
	} {
		audits.asked = nil
		rec := call(h, "GET", "/api/v1/audit"+c.query, "", bearer(c.key)...)
		if rec.Code != 200 || len(audits.asked) != 1 || audits.asked[0].Without != c.without {
			t.Errorf("%s%s: %d, asked for %+v, want without %q", c.key, c.query, rec.Code, audits.asked, c.without)
		}
	}
}

// TestKeyRevoked: the process that revokes a key refuses it at once, another one
// after 5 s at the latest; one that is over is refused when it is.
func TestKeyRevoked(t *testing.T) {
	h, w, keys := keyed(t)
	use := func(name string, want int, says string) {
		t.Helper()
		if rec := call(h, "GET", "/api/v1/runs", "", bearer(name)...); rec.Code != want || !strings.Contains(rec.Body.String(), says) {
			t.Errorf("%s: %d %s, want %d with %q", name, rec.Code, rec.Body, want, says)
		}
	}
	use("ci", 200, "")
	if rec := call(h, "DELETE", keysPath+"/ci", ""); rec.Code != 200 {
		t.Fatal(rec.Body)
	}
	use("ci", 401, "the key is revoked")

	use("dash", 200, "")
	if _, err := keys.RevokeKey(t.Context(), "dash", ""); err != nil { // elsewhere
		t.Fatal(err)
	}
	w.clock.step(keyFresh - time.Millisecond)
	use("dash", 200, "")
	w.clock.step(time.Millisecond)
	use("dash", 401, "the key is revoked")

	call(h, "POST", keysPath, `{"name":"short","expires_in":"1s"}`)
	use("short", 200, "")
	w.clock.step(time.Second)
	use("short", 401, "the key is expired")
}

// TestKeyClock: keys end, and are noted as used, by the clock of what holds them,
// which all processes share, and not by that of one machine.
func TestKeyClock(t *testing.T) {
	h, w, keys := keyed(t)
	keys.now = func() time.Time { return w.clock.Now().Add(2 * time.Hour) }
	if rec := call(h, "GET", "/api/v1/runs", "", bearer("dash")...); rec.Code != 401 || !strings.Contains(rec.Body.String(), "the key is expired") {
		t.Errorf("on a machine that is behind: %d %s", rec.Code, rec.Body)
	}
	if rec := call(h, "GET", keysPath, ""); !strings.Contains(rec.Body.String(), `"state":"expired"`) {
		t.Errorf("the list: %s", rec.Body)
	}
	keys.now = func() time.Time { return w.clock.Now().Add(-2 * time.Hour) }
	w.clock.step(90 * time.Minute)
	if rec := call(h, "GET", "/api/v1/runs", "", bearer("dash")...); rec.Code != 200 {
		t.Errorf("on a machine that is ahead: %d %s", rec.Code, rec.Body)
	}
	if at := keys.at("dash").LastUsedAt; at == nil || !at.Equal(keys.now().Truncate(time.Microsecond)) {
		t.Errorf("used at %v, want %v", at, keys.now())
	}
}

// TestKeyLookups: a key that is used costs a look-up in 5 s, and its use is noted
// once a minute; that it cannot be noted keeps nobody out.
func TestKeyLookups(t *testing.T) {
	h, w, keys := keyed(t)
	for range 12 {
		for range 3 {
			call(h, "GET", "/api/v1/runs", "", bearer("ci")...)
		}
		w.clock.step(keyFresh)
	}
	if keys.looked != 12 || len(keys.noted) != 1 {
		t.Errorf("in a minute %d look-ups and %d notes, want 12 and 1", keys.looked, len(keys.noted))
	}
	call(h, "GET", "/api/v1/runs", "", bearer("ci")...)
	if len(keys.noted) != 2 {
		t.Errorf("after a minute %d notes, want 2", len(keys.noted))
	}
}

// TestKeyIsNotedSoon: while the store takes no writes, the use of a key that cannot be
// noted holds up nobody for long.
func TestKeyIsNotedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, keys := keyed(t)
		keys.stuck = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // its client is patient
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/runs", nil)
		r.Host = "localhost"
		r.Header.Set(bearer("ci")[0], bearer("ci")[1])
		rec, began := httptest.NewRecorder(), time.Now()
		h.ServeHTTP(rec, r)
		if took := time.Since(began); rec.Code != http.StatusOK || took > 5*time.Second {
			t.Errorf("%d after %v: %s", rec.Code, took, rec.Body)
		}
	})
}

// TestKeysAway: without the store only the configured key is good, and those that
// were used in the last seconds.
func TestKeysAway(t *testing.T) {
	h, w, keys := keyed(t)
	call(h, "GET", "/api/v1/runs", "", bearer("ci")...)
	keys.mu.Lock()
	keys.broken = errors.New("secret words of a driver")
	keys.mu.Unlock()
	for name, want := range map[string]int{"ci": 200, "dash": 503} {
		if rec := call(h, "GET", "/api/v1/runs", "", bearer(name)...); rec.Code != want || strings.Contains(rec.Body.String(), "driver") {
			t.Errorf("%s: %d %s, want %d", name, rec.Code, rec.Body, want)
		}
	}
	w.clock.step(2 * noteEvery)
	if rec := call(h, "GET", "/api/v1/runs", ""); rec.Code != 200 {
		t.Errorf("the configured key: %d", rec.Code)
	}
	if rec := call(h, "GET", "/api/v1/runs", "", bearer("ci")...); rec.Code != 503 || failure(t, rec).Code != parley.CodeUnavailable {
		t.Errorf("later: %d %s", rec.Code, rec.Body)
	}
}

// TestKeyringIsBounded: however many keys there are.
func TestKeyringIsBounded(t *testing.T) {
	s, _ := setup(nil)
	h := s.handler()
	for i := range maxKnownKeys + 10 {
		name := fmt.Sprintf("k%d", i)
		call(h, "POST", keysPath, `{"name":"`+name+`"}`)
		call(h, "GET", "/api/v1/runs", "", bearer(name)...)
	}
	if n := len(s.ring.known); n == 0 || n > maxKnownKeys {
		t.Errorf("%d keys are remembered, want 1 to %d", n, maxKnownKeys)
	}
}

// TestKeyRevokedMeanwhile: what was looked up before a revocation is not kept after
// it.
func TestKeyRevokedMeanwhile(t *testing.T) {
	h, _, keys := keyed(t)
	keys.meanwhile = func() {
		keys.meanwhile = nil
		call(h, "DELETE", keysPath+"/ci", "")
	}
	for i, want := range []int{200, 401} {
		if rec := call(h, "GET", "/api/v1/runs", "", bearer("ci")...); rec.Code != want {
			t.Errorf("request %d: %d, want %d", i, rec.Code, want)
		}
	}
}

// TestCutPage: each page has its part of the list, and what is beyond it is empty.
func TestCutPage(t *testing.T) {
	all := []int{1, 2, 3, 4, 5}
	for number, want := range map[int]string{1: "[1 2]", 2: "[3 4]", 3: "[5]", 4: "[]", 1 << 40: "[]"} {
		p := cutPage(all, pageRequest{number: number, size: 2}, func(n int) int { return n })
		if got := fmt.Sprint(p.Items); got != want || p.Total != 5 || p.TotalPages != 3 {
			t.Errorf("page %d: %s, %+v, want %s", number, got, p, want)
		}
	}
}
